"""The contents of the packages, without a network and without building one; scripts/clean_machines.sh tries them."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from support.gdb_side import needs_gdb
from support.programs import GDBHEAP, PATIENCE
from support.scripts import script

import gdbheap

ROOT = Path(__file__).resolve().parent.parent
PACKAGING = ROOT / "packaging"
MADE_BY_SETUPTOOLS = {"PKG-INFO", "setup.cfg"}
INSTALLED = Path(gdbheap.__file__).parent.parent


def in_git() -> set[str]:
    """Return the names of the existing files that git knows."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a checkout of git")
    said = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return {name for name in said.split("\0") if name and (ROOT / name).is_file()}


def test_built_files_are_not_in_git() -> None:
    """Check that git has no file that is built: none that it ignores, no page of a manual and no report."""
    known = in_git()
    command = ["git", "ls-files", "-z", "--cached", "--ignored", "--exclude-standard"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout == ""
    assert sorted(name for name in known if name.endswith((".html", ".1", ".gz", ".whl", ".so", ".pyc"))) == []
    assert "packaging/man/" in (ROOT / ".gitignore").read_text(encoding="utf-8")


def test_source_distribution(tmp_path: Path) -> None:
    """Check that the source distribution has every file of git and the manual page, and no other file, even if the
    checkout contains a build, a core and a cache.
    """
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
    assert {name for name in names if ".egg-info/" not in name} - MADE_BY_SETUPTOOLS == {
        # Nobody needs these without a checkout.
        name
        for name in expected
        if not name.startswith(".")
    }


def test_what_is_installed() -> None:
    """Check a wheel's files: the modules of Rust, the pages, the licences, and nothing of the tests."""
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
    """Check that the package requires one library and no more, unless an extra is asked for."""
    required = importlib.metadata.requires("gdbheap") or []
    plain = {re.split(r"[^\w-]", line)[0] for line in required if "extra ==" not in line}
    assert plain == {"pyelftools"}
    assert importlib.metadata.metadata("gdbheap")["Requires-Python"] == ">=3.9"


def test_versions_agree() -> None:
    """Check that the package, the changelog and the manual page have one version, and that crates state none."""
    version = importlib.metadata.version("gdbheap")
    places = {
        "CHANGELOG.md": r"^## (\d\S*)",
        "packaging/man/gdbheap.1": r'^\.TH GDBHEAP 1 "" "gdbheap (.*?)"',
    }
    found = {}
    for name, pattern in places.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match and match[1]
    assert found == dict.fromkeys(places, version)
    assert gdbheap.__version__ == version
    crates = {path.read_text(encoding="utf-8") for path in (ROOT / "native").glob("**/Cargo.toml")}
    assert {found for text in crates for found in re.findall(r'^version = "(.*)"', text, re.MULTILINE)} == {"0.0.0"}
    assert not (PACKAGING / "debian" / "changelog").exists()


def test_licences() -> None:
    """Check that the release of each named crate is that of Cargo.lock, and that each dependency of the project's
    crates is named."""
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
    """Check that cargo-zigbuild gets the arguments that setuptools-rust gives to cargo, and that only the target
    gets a release of glibc."""
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
    """Return a copy of a file of the Debian package, changed to use the folder where gdbheap is installed here."""
    text = (PACKAGING / "debian" / name).read_text(encoding="utf-8")
    assert "/usr/lib/gdbheap" in text
    copy = folder / name
    copy.write_text(text.replace("/usr/lib/gdbheap", str(INSTALLED)), encoding="utf-8")
    return copy


def test_command_of_the_debian_package(tmp_path: Path) -> None:
    """Check that the command finds the folder, with nothing else on the path."""
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
    """Check that gdb reads the package's file from gdbinit.d and finds the script, and that it prints nothing
    without the folder."""
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


def installed_command(folder: Path, interpreter: str = "") -> Path:
    """Return a copy of the command's two files in a folder, with an interpreter in the first line as pip writes it."""
    folder.mkdir(parents=True)
    for name in ("gdbheap", "gdbheap-python"):
        text = (PACKAGING / "script" / name).read_text(encoding="utf-8")
        if name != "gdbheap":
            text = f"#!{interpreter or sys.executable}\n{text.partition(chr(10))[2]}"
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder / "gdbheap"


def started(command: Path | str, **variables: str) -> str:
    """Return what the command prints as its version, with nothing on standard error."""
    options = {"cwd": "/", "env": {**os.environ, **variables}, "timeout": PATIENCE}
    done = subprocess.run([str(command), "--version"], capture_output=True, text=True, **options)
    assert (done.returncode, done.stderr) == (0, ""), command
    return done.stdout


def test_command_in_a_folder_with_a_blank(tmp_path: Path) -> None:
    """Check that the command finds its Python and its second file: by a path with blanks, by links, and on the path."""
    python = tmp_path / "a b" / "python"
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    command = installed_command(tmp_path / "c  d" / "bin", str(python))
    link, again = tmp_path / "e f" / "heap", tmp_path / "again"
    link.parent.mkdir()
    link.symlink_to(command)
    again.symlink_to(link)
    expected = started(GDBHEAP)
    assert expected.startswith(f"gdbheap {gdbheap.__version__}")
    assert {started(path) for path in (command, link, again)} == {expected}
    assert started("heap", PATH=f"{link.parent}:{os.environ['PATH']}") == expected


def test_command_takes_nothing_from_variables(tmp_path: Path) -> None:
    """Check that under sudo the Python of the command reads no variable of Python's from its first moment on, and that
    it reads them without sudo."""
    command = installed_command(tmp_path / "bin")
    (tmp_path / "sitecustomize.py").write_text("print('PLANTED')\n")
    assert "PLANTED" not in started(command, SUDO_UID="1", PYTHONPATH=str(tmp_path))
    assert "PLANTED" in started(command, PYTHONPATH=str(tmp_path))


def test_command_has_its_own_name() -> None:
    """Check that the process is called gdbheap however it was started: gdbheap knows other gdbheaps by that."""
    for command in ([str(GDBHEAP)], [sys.executable, "-m", "gdbheap"]):
        ways = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "cwd": "/"}
        with subprocess.Popen([*command, "shell", "--json", str(os.getpid())], **ways) as process:  # type: ignore[call-overload]
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write("arenas\n")
            process.stdin.flush()
            assert process.stdout.readline()
            assert Path(f"/proc/{process.pid}/comm").read_text() == "gdbheap\n"
            process.stdin.close()
            process.stdout.read()


def test_stamp(tmp_path: Path) -> None:
    """Check that a source distribution of a checkout names its commit, also if it has changes, and that one made from
    a source distribution keeps the name."""
    in_git()
    checkout = tmp_path / "checkout"
    (checkout / "gdbheap").mkdir(parents=True)
    (checkout / "commands").mkdir()
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "gdbheap/__init__.py"):
        shutil.copyfile(ROOT / name, checkout / name)
    (checkout / "MANIFEST.in").write_text("include gdbheap/*.py\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=checkout, check=True, capture_output=True)
    asked = [*git, "rev-parse", "HEAD"]
    commit = subprocess.run(asked, cwd=checkout, check=True, capture_output=True, text=True).stdout
    assert stamped(checkout, tmp_path / "one") == commit[:12]
    (checkout / "README.md").write_text("changed\n")
    assert stamped(checkout, tmp_path / "two") == f"{commit[:12]}-dirty"
    shutil.rmtree(checkout / ".git")
    assert stamped(checkout, tmp_path / "three") == ""
    place = checkout / "gdbheap" / "__init__.py"
    place.write_text(place.read_text().replace('__commit__ = ""', '__commit__ = "kept"'))
    assert stamped(checkout, tmp_path / "four") == "kept"


def stamped(checkout: Path, folder: Path) -> str:
    """Return the commit in a source distribution of the checkout."""
    folder.mkdir()
    build = f"from setuptools import build_meta; build_meta.build_sdist({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=checkout, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    for path in checkout.glob("*.egg-info"):
        shutil.rmtree(path)
    with tarfile.open(next(folder.iterdir())) as archive:
        member = archive.extractfile(f"gdbheap-{gdbheap.__version__}/gdbheap/__init__.py")
        assert member is not None
        found = re.search(r'^__commit__ = "(.*)"$', member.read().decode(), re.MULTILINE)
    assert found is not None
    return found[1]


def test_bill_of_materials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that it names the crates that licences.txt names, and the locked Python packages, each with the checksum
    of the file that is built or installed."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1000000000")
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    bill = script("sbom").document()
    named = set(re.findall(r"^(\S+ \d\S+) \(.*\)$", (PACKAGING / "licences.txt").read_text(), re.MULTILINE))
    parts = {f"{part['name']} {part['version']}": part for part in bill["components"]}
    crates = {name for name, part in parts.items() if part["purl"].startswith("pkg:cargo/")}
    assert crates == named and {name.split()[0] for name in parts.keys() - crates} == {"pyelftools"}
    known = (ROOT / "native" / "Cargo.lock").read_text() + (PACKAGING / "requirements.txt").read_text()
    assert all(part["hashes"][0]["content"] in known for part in parts.values())
    assert all("/" not in licence["expression"] for part in parts.values() for licence in part.get("licenses", []))
    assert bill["metadata"]["timestamp"] == "2001-09-09T01:46:40Z"
    assert bill["metadata"]["component"]["version"] == gdbheap.__version__


def test_a_fitting_wheel(tmp_path: Path) -> None:
    """Check that a wheel in dist/ is taken only if it was made of this commit, for this machine and C library, and if
    the checkout has no changes."""
    in_git()
    (tmp_path / "dist").mkdir()
    (tmp_path / "file").write_text("1")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.invalid"]
    for words in (["init", "-q"], ["add", "file"], ["commit", "-q", "-m", "first"]):
        subprocess.run([*git, *words], cwd=tmp_path, check=True, capture_output=True)
    asked = [*git, "rev-parse", "HEAD"]
    commit = subprocess.run(asked, cwd=tmp_path, check=True, capture_output=True, text=True).stdout[:12]

    def found() -> str:
        text = f'. "{ROOT}/scripts/common.sh"; fitting_wheel "{sys.executable}"'
        return subprocess.run(
            ["sh", "-c", text], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    def write(platform_tag: str, made_of: str) -> str:
        name = f"dist/gdbheap-{gdbheap.__version__}-cp39-abi3-{platform_tag}.whl"
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("gdbheap/__init__.py", f'__version__ = "1"\n__commit__ = "{made_of}"\n')
        return name

    libc, other = ("manylinux", "musllinux") if platform.libc_ver()[0] == "glibc" else ("musllinux", "manylinux")
    write(f"{other}_1_{platform.machine()}", commit)
    write(f"{libc}_1_sparc", commit)
    write(f"{libc}_1_{platform.machine()}", "0" * 12)
    assert found() == ""
    fitting = write(f"{libc}_1_{platform.machine()}", commit)
    assert found() == fitting
    (tmp_path / "file").write_text("2")
    assert found() == ""


def test_module_in_a_checkout() -> None:
    """Check that ``python -m gdbheap`` says what to run where it finds the sources instead of an installation."""
    command = [sys.executable, "-m", "gdbheap", "--version"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "not an installation" in done.stderr and ".venv/bin/gdbheap" in done.stderr
