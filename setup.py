"""Build what pyproject.toml cannot describe: two folders of packages, modules of Rust, and the commit of a build."""

import os
import platform
import subprocess
import sysconfig
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools_rust import Binding, RustExtension

HERE = Path(__file__).resolve().parent
STAMP = Path("gdbheap", "__init__.py")
# For which machine: the recorder and the replayer have instructions of x86-64.
MACHINE = os.environ.get("CARGO_BUILD_TARGET", platform.machine()).partition("-")[0]
# A free-threaded Python does not load abi3 modules: a module is built for this release alone.
ABI3 = not sysconfig.get_config_var("Py_GIL_DISABLED")
TRACING = [
    # Nobody imports it: programs are started with it.
    RustExtension(
        "gdbheap._recorder",
        path="native/recorder/Cargo.toml",
        binding=Binding.NoBinding,
        py_limited_api=ABI3,
        debug=False,
    ),
    # A program, beside them.
    RustExtension(
        {"_replayer": "gdbheap._replayer"},
        path="native/replayer/Cargo.toml",
        binding=Binding.Exec,
        debug=False,
    ),
]


def packages():
    """Return gdbheap and its subpackages; the folder commands/ becomes gdbheap.commands."""
    below = find_packages(str(HERE), include=["gdbheap", "gdbheap.*"])
    commands = ["gdbheap.commands." + name for name in find_packages(str(HERE / "commands"))]
    return below + ["gdbheap.commands"] + commands


def stamp(folder):
    """Write the commit of this checkout into ``folder``'s copy of gdbheap/__init__.py. A source distribution already
    has it there; without git it stays empty."""
    target = Path(folder, STAMP)
    if not (HERE / ".git").exists() or not target.exists():
        return
    ask = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        commit = subprocess.run(ask, cwd=HERE, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return
    text = target.read_text(encoding="utf-8").replace('__commit__ = ""', f'__commit__ = "{commit}"')
    # The file may be a hard link to the checkout's own.
    target.unlink()
    target.write_text(text, encoding="utf-8")


class StampedBuild(build_py):
    """build_py, which also writes the commit."""

    def run(self):
        """Build, then write the commit; an editable installation uses the checkout's own file."""
        super().run()
        if not self.editable_mode:
            stamp(self.build_lib)


class StampedSource(sdist):
    """sdist, which also writes the commit."""

    def make_release_tree(self, base_dir, files):
        """Copy the files, then write the commit."""
        super().make_release_tree(base_dir, files)
        stamp(base_dir)


setup(
    packages=packages(),
    package_dir={"gdbheap.commands": "commands"},
    cmdclass={"build_py": StampedBuild, "sdist": StampedSource},
    rust_extensions=[
        RustExtension(
            "gdbheap._native",
            path="native/binding/Cargo.toml",
            binding=Binding.PyO3,
            py_limited_api=ABI3,
            debug=False,
        ),
        *(TRACING if MACHINE == "x86_64" else []),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp39"}} if ABI3 else {},
)
