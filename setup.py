"""Build gdbheap: a pure Python package, and one abi3 module in Rust that every Python from 3.9 up can load.

All of what is installed is declared here; pyproject.toml only says how to build and how to check.
"""

import ast
from pathlib import Path

from setuptools import find_packages, setup
from setuptools_rust import Binding, RustExtension

HERE = Path(__file__).resolve().parent
# What is installed writes it (scripts/manual.py), so that a first build from a checkout has none.
MANUAL = "packaging/man/gdbheap.1"


def version():
    """Return ``__version__`` of gdbheap/__init__.py without importing it: the native module is not built yet."""
    tree = ast.parse((HERE / "gdbheap" / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__version__":
            return ast.literal_eval(node.value)
    raise RuntimeError("gdbheap/__init__.py has no __version__")


def packages():
    """Return gdbheap and its subpackages; the folder commands/ becomes gdbheap.commands."""
    below = find_packages(str(HERE), include=["gdbheap", "gdbheap.*"])
    commands = ["gdbheap.commands." + name for name in find_packages(str(HERE / "commands"))]
    return below + ["gdbheap.commands"] + commands


setup(
    name="gdbheap",
    version=version(),
    description="Where a process's memory went, down to the last page, from gdb or a shell",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE", "packaging/licences.txt"],
    python_requires=">=3.9",
    packages=packages(),
    package_dir={"gdbheap.commands": "commands"},
    package_data={
        "gdbheap": ["py.typed", "_native.pyi"],
        "gdbheap.loader": ["gdbheap", "help.txt"],
        "gdbheap.layout": ["tables/*.json"],
        "gdbheap.commands.shell.mcp": ["SKILL.md"],
        "gdbheap.report": ["page/*.css", "page/*.js"],
    },
    # In a user's own prefix man(1) and the shells look here too.
    data_files=[
        ("share/man/man1", [MANUAL] if (HERE / MANUAL).exists() else []),
        ("share/bash-completion/completions", ["packaging/completion/gdbheap.bash"]),
        ("share/zsh/site-functions", ["packaging/completion/_gdbheap"]),
        ("share/fish/vendor_completions.d", ["packaging/completion/gdbheap.fish"]),
    ],
    rust_extensions=[
        RustExtension(
            "gdbheap._native",
            path="native/binding/Cargo.toml",
            binding=Binding.PyO3,
            py_limited_api=True,
            debug=False,
        ),
        # Nobody imports it: programs are started with it.
        RustExtension(
            "gdbheap._recorder",
            path="native/recorder/Cargo.toml",
            binding=Binding.NoBinding,
            py_limited_api=True,
            debug=False,
        ),
        # A program, beside them.
        RustExtension(
            {"_replayer": "gdbheap._replayer"},
            path="native/replayer/Cargo.toml",
            binding=Binding.Exec,
            debug=False,
        ),
    ],
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
    zip_safe=False,
    install_requires=["pyelftools>=0.29,<0.33"],
    extras_require={
        "plot": ["matplotlib>=3.5"],
        "parquet": ["pyarrow>=16"],
        "arrow": ["pyarrow>=16"],
        "pandas": ["pandas>=1.5"],
        "sql": ["duckdb>=1.1", "pyarrow>=16"],
        "remote": ["fsspec>=2023.1"],
        "prometheus": ["prometheus_client>=0.17"],
        # It needs Python 3.10. A list of words in a shell has no blanks within one.
        "mcp": ["mcp>=2,<3;python_version>='3.10'"],
        "test": [
            "pytest>=7",
            "pytest-xdist>=3",
            "pytest-timeout>=2",
            "hypothesis",
            "codespell>=2.2.2",
            "mypy",
            "ruff",
            "tabulate>=0.9",
            "types-tabulate",
            "types-gdb",
            "promql-parser",
            "jsonschema>=4",
            "kubernetes-validate",
        ],
    },
    # Not an entry point: the script that is made of one imports regular expressions first (pip 23), which take as long
    # as the rest of a short command.
    scripts=["packaging/script/gdbheap"],
    classifiers=[
        "Environment :: Console",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Rust",
        "Topic :: Software Development :: Debuggers",
    ],
)
