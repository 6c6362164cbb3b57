"""What the packages are made of, without a network and without building one: scripts/clean_machines.sh tries them."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath

import pytest
from support.gdb_side import needs_gdb
from support.programs import PATIENCE

import gdbheap

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
# What nobody needs who has no checkout.
LEFT_OUT = {".ci/run", ".gitignore"}
MADE_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg"}
INSTALLED = Path(gdbheap.__file__).parent.parent


def in_git() -> set[str]:
    """Return the names of the files that git knows and that are there."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    said = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in said.split("\0") if name and (ROOT / name).is_file()}


def test_source_distribution(tmp_path: Path) -> None:
    """It has every file of git, the manual page and no other, although a build, a core and a cache lie about."""
    expected = {*in_git(), "packaging/man/gdbheap.1"}
    checkout = tmp_path / "checkout"
    for name in expected:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, checkout / name)
    litter = [
        "build/lib/x.py",
        "native/target/x.rs",
        "tests/__pycache__/x.pyc",
        "core",
        "gdbheap/_native.abi3.so",
        "dist/x.whl",
    ]
    for name in litter:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_bytes(b"x")
    build = [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('made')"]
    (checkout / "made").mkdir()
    done = subprocess.run(build, cwd=checkout, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    (made,) = (checkout / "made").iterdir()
    with tarfile.open(made) as archive:
        names = {str(PurePosixPath(*PurePosixPath(member.name).parts[1:])) for member in archive if member.isfile()}
    assert made.name == f"gdbheap-{gdbheap.__version__}.tar.gz"
    assert {name for name in names if ".egg-info/" not in name} - MADE_BY_SETUPTOOLS == expected - LEFT_OUT


def test_what_is_installed() -> None:
    """A wheel's files: the modules of Rust, the pages, the licences, and nothing of the tests."""
    files = {str(path) for path in importlib.metadata.files("gdbheap") or []}
    for name in ("_native.abi3.so", "_replayer", "py.typed", "loader/gdbheap", "commands/shell/main.py"):
        assert f"gdbheap/{name}" in files
    for name in ("bash-completion/completions/gdbheap.bash", "zsh/site-functions/_gdbheap"):
        assert [path for path in files if path.endswith(f"share/{name}")], name
    assert [path for path in files if path.endswith("share/fish/vendor_completions.d/gdbheap.fish")]
    # Their folder depends on the release of setuptools.
    assert {Path(path).name for path in files if ".dist-info/" in path} >= {"LICENSE", "licences.txt"}
    tops = {PurePosixPath(path).parts[0] for path in files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"..", "gdbheap"}


def test_what_is_required() -> None:
    """One library and no more, unless an extra is asked for."""
    required = importlib.metadata.requires("gdbheap") or []
    plain = {re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line}
    assert plain == {"pyelftools"}
    assert importlib.metadata.metadata("gdbheap")["Requires-Python"] == ">=3.9"


def test_versions_agree() -> None:
    """The package, the crates, the Debian package, the changelog and the manual page are of one version."""
    version = importlib.metadata.version("gdbheap")
    places = {
        "native/Cargo.toml": r'^version = "(.*)"',
        "packaging/debian/changelog": r"^gdbheap \((.*)\) ",
        "CHANGELOG.md": r"^## (\d\S*)",
        "packaging/man/gdbheap.1": r'^\.TH GDBHEAP 1 "" "gdbheap (.*?)"',
    }
    found = {}
    for name, pattern in places.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match and match[1]
    assert found == dict.fromkeys(places, version)
    assert gdbheap.__version__ == version


def test_licences() -> None:
    """Each crate that is named is the release of Cargo.lock, and each that a crate of ours names is there."""
    lock = (ROOT / "native" / "Cargo.lock").read_text(encoding="utf-8")
    locked = set(re.findall(r'^name = "(.*)"\nversion = "(.*)"\nsource', lock, re.MULTILINE))
    text = (PACKAGING / "licences.txt").read_text(encoding="utf-8")
    named = set(re.findall(r"^(\S+) (\d\S+) \(.*\)$", text, re.MULTILINE))
    assert named and named <= locked, "run scripts/licences.py --write"
    ours = [path.read_text(encoding="utf-8") for path in (ROOT / "native").glob("*/Cargo.toml")]
    wanted = {
        name
        for text in ours
        for part in re.findall(r"^\[dependencies\]\n((?:.+\n)*)", text, re.MULTILINE)
        for name in re.findall(r"^([\w-]+) = ", part, re.MULTILINE)
    }
    assert {name for name in wanted if not name.startswith("gdbheap-")} <= {name for name, _ in named}


@pytest.mark.parametrize("glibc", ["2.17", None])
def test_cargo_by_zig(glibc: str | None, tmp_path: Path) -> None:
    """What setuptools-rust asks of cargo reaches cargo-zigbuild, and only the target gets a release of glibc."""
    fake = tmp_path / "cargo-zigbuild"
    fake.write_text('#!/bin/sh\nprintf "%s\\n" "$@" "${CARGO-none}" "${CARGO_BUILD_TARGET-none}"\n')
    fake.chmod(0o755)
    target = "x86_64-unknown-linux-gnu"
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "CARGO_BUILD_TARGET": target, "CARGO": "x"}
    environment.update({"GLIBC": glibc} if glibc else {})
    for asked, meant in (("rustc", "rustc"), ("build", "zigbuild")):
        command = [str(PACKAGING / "cargo"), asked, "--features", "a b", "--target", target, "--", "-C", f"x={target}"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        suffix = f".{glibc}" if glibc else ""
        tail = ["--target", target + suffix, "--", "-C", f"x={target}", "none", "none"]
        assert done.stdout.splitlines() == [meant, "--locked", "--features", "a b", *tail]


def moved(name: str, folder: Path) -> Path:
    """Return a copy of a file of the Debian package's that looks where gdbheap is installed here."""
    text = (PACKAGING / "debian" / name).read_text(encoding="utf-8")
    assert "/usr/lib/gdbheap" in text
    copy = folder / name
    copy.write_text(text.replace("/usr/lib/gdbheap", str(INSTALLED)), encoding="utf-8")
    return copy


def test_command_of_the_debian_package(tmp_path: Path) -> None:
    """It finds the folder, with nothing else on the path."""
    done = subprocess.run(
        [sys.executable, "-S", str(moved("gdbheap.py", tmp_path)), "--version"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert gdbheap.__version__ in done.stdout


@needs_gdb
def test_gdb_of_the_debian_package(tmp_path: Path) -> None:
    """gdb reads its file from gdbinit.d, and then finds the script; without the folder it says nothing."""
    script = moved("gdbinit.py", tmp_path)
    ask = ["gdb", "-nx", "-batch", "-ix"]
    done = subprocess.run(
        [*ask, str(script), "-x", "gdbheap", "-ex", "help heap holes"], capture_output=True, text=True
    )
    assert "free memory not returned to the kernel" in done.stdout, done.stderr
    gone = tmp_path / "gone.py"
    gone.write_text(script.read_text().replace(str(INSTALLED), str(tmp_path / "nothing")))
    done = subprocess.run([*ask, str(gone), "-ex", "show directories"], capture_output=True, text=True)
    assert (done.stderr, "nothing" in done.stdout) == ("", False)
