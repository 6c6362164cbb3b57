"""Plant the faults of tests/faults.toml one by one in a copy, run the tests that should notice them, and write
docs/tests.md.

    .venv/bin/python tests/mutate.py FOLDER [--write] [ID ...]

FOLDER keeps the copy and the results: a run that was ended continues there. A result holds until the fault, the
file that it changes, or one of the named tests is changed. A fault is noticed if a test fails with it that passes
without it.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
FAULTS = ROOT / "tests" / "faults.toml"
PAGE = ROOT / "docs" / "tests.md"
SITE = Path("lib", f"python{sysconfig.get_python_version()}", "site-packages")
# What cargo builds from the crates: the package, its file in the target folder, and the installed file.
MODULE = ("gdbheap-native", "lib_native.so", "gdbheap/_native.abi3.so")
RECORDER = ("gdbheap-recorder", "lib_recorder.so", "gdbheap/_recorder.abi3.so")
REPLAYER = ("gdbheap-replayer", "_replayer", "gdbheap/_replayer")
PRODUCTS = {"calls": (MODULE, RECORDER), "recorder": (RECORDER,), "replayer": (REPLAYER,), "plan": (MODULE, REPLAYER)}
NOTICED, MISSED, BROKEN = "noticed", "missed", "broken"
TIMEOUT, AHEAD = 900, 60
CARGO, CARGO_TESTS = "cargo", "native/core/tests"
HEAD = """# What the tests notice

`tests/faults.toml` has faults: each is a small change of the product that makes one answer wrong. `tests/mutate.py`
plants the faults one by one in a copy of the checkout. Each fault names the tests that a developer would run after such
a change, and the script runs these tests. A fault counts as noticed if one of them fails. When most of these faults
were planted for the first time, no test failed, and tests for them were then written. The table therefore shows which
faults the tests notice now. The table does not show how many new faults the tests would notice.

"""
AT_RANDOM = """## Faults at random places

For {drawn} of these faults, a random generator chose the file and the function ({seed}). The faults were written down
before anybody looked at the tests. The tests to run were chosen only by the names of files and of tests. When they were
planted for the first time, {count} of {drawn} were noticed ({share}). This share is the best estimate of how many new
faults the tests notice, if they are chosen in this way. Tests for the faults that no test noticed were then written.

"""
SEED = "seed 20261130"
UNNOTICED = "Nothing notices these:\n\n"


@dataclass(frozen=True)
class Fault:
    """A fault: in ``file``, ``old`` becomes ``new``. ``tests``: arguments of pytest, and "cargo" with the arguments of
    ``cargo test``. ``equivalent``: why it changes no answer, "" if it does. ``first``: for a fault at a random place,
    the result when it was planted for the first time, before any test was written for it."""

    id: str
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    equivalent: str = ""
    first: str = ""

    @property
    def is_rust(self) -> bool:
        """Return whether the fault is in native code."""
        return self.file.endswith(".rs")

    @property
    def room(self) -> str:
        """Return the package or crate of the file."""
        return "/".join(Path(self.file).parts[:2]) if not self.file.startswith("commands/") else "commands"

    def planted(self, text: str) -> str:
        """Return a file's text with the fault. Raises ValueError if ``old`` is not there exactly once."""
        if text.count(self.old) != 1 or self.old == self.new:
            raise ValueError(f"{self.id}: {self.file} has the text {text.count(self.old)} times")
        return text.replace(self.old, self.new)

    def digest(self, root: Path) -> str:
        """Return a digest of everything on which the result depends, in the checkout ``root``."""
        files = {self.file, *(test.partition("::")[0] for test in self.tests if not test.startswith(CARGO))}
        parts = [repr(dataclasses.replace(self, first=""))]
        parts += [path.read_text(encoding="utf-8") for path in map(root.joinpath, sorted(files))]
        if any(test.startswith(CARGO) for test in self.tests):
            parts += [path.read_text(encoding="utf-8") for path in sorted((root / CARGO_TESTS).rglob("*.rs"))]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def faults() -> list[Fault]:
    """Return all faults of the file."""
    rows = tomllib.loads(FAULTS.read_text(encoding="utf-8"))["fault"]
    return [Fault(**{**row, "tests": tuple(row["tests"])}) for row in rows]


class Copy:
    """A copy of the checkout with an environment of its own, in which faults are planted."""

    def __init__(self, folder: Path) -> None:
        self.checkout, self.venv, self.target = folder / "checkout", folder / "venv", folder / "target"
        self._passing: dict[str, bool] = {}
        self._refresh()

    def passes(self, test: str) -> bool:
        """Return whether a test passes without a fault; it is run once."""
        if test not in self._passing:
            self._passing[test] = self.run([test]) == MISSED
        return self._passing[test]

    @property
    def python(self) -> Path:
        """Return the environment's interpreter."""
        return self.venv / "bin" / "python"

    def _refresh(self) -> None:
        """Copy the files that git knows, and the installed package; all other packages are this environment's."""
        command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).is_file():
                _copy(ROOT / name, self.checkout / name)
        if not self.python.exists():
            venv.create(self.venv, symlinks=True)
        own = Path(sysconfig.get_path("purelib"))
        (self.venv / SITE / "others.pth").write_text(f"{own}\n")
        for path in (own / "gdbheap").rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                _copy(path, self.venv / SITE / "gdbheap" / path.relative_to(own / "gdbheap"))
        for script in Path(sys.executable).parent.glob("gdbheap*"):
            placed = self.venv / "bin" / script.name
            placed.write_text(script.read_text().replace(f"#!{sys.executable}", f"#!{self.python}", 1))
            placed.chmod(0o755)
        # What the tests find there: packages, allocators, images.
        (self.checkout / "build").mkdir(exist_ok=True)
        for built in (ROOT / "build").iterdir():
            link = self.checkout / "build" / built.name
            if not link.is_symlink() and not link.exists():
                link.symlink_to(built.resolve())

    def installed(self, name: str) -> Path:
        """Return the installed copy of a Python file of the checkout."""
        return self.venv / SITE / ("" if name.startswith("gdbheap/") else "gdbheap") / name

    def put(self, name: str, text: str) -> None:
        """Write a file of the checkout, and its installed copy."""
        places = [self.checkout / name]
        if name.endswith(".py"):
            places.append(self.installed(name))
        for place in places:
            place.write_text(text, encoding="utf-8")
            # cargo builds again what is newer than the last build, however fast two faults follow each other.
            later = time.time() + AHEAD
            os.utime(place, (later, later))
            # A new file of the same size within the same second would look unchanged.
            shutil.rmtree(place.parent / "__pycache__", ignore_errors=True)

    def build(self, file: str) -> None:
        """Build and install what contains a source file. Raises CalledProcessError if it does not compile."""
        for package, built, installed in PRODUCTS.get(Path(file).parts[1], (MODULE,)):
            self._cargo("build", "--release", "-p", package).check_returncode()
            _copy(self.target / "release" / built, self.venv / SITE / installed)

    def restore(self) -> None:
        """Install the products of cargo without a fault."""
        for _package, _built, installed in (MODULE, RECORDER, REPLAYER):
            _copy(Path(sysconfig.get_path("purelib")) / installed, self.venv / SITE / installed)

    def run(self, tests: Sequence[str]) -> str:
        """Run tests until one fails. Return MISSED if all pass, NOTICED if one fails, BROKEN if they cannot run."""
        of_cargo = [test.split()[1:] for test in tests if test.startswith(CARGO)]
        for arguments in of_cargo:
            command = ["test", "-q", "-p", "gdbheap-core", *arguments]
            if self._cargo(*command, "--no-run").returncode:
                return BROKEN
            try:
                if self._cargo(*command, timeout=TIMEOUT).returncode:
                    return NOTICED
            except subprocess.TimeoutExpired:
                return NOTICED
        others = [test for test in tests if not test.startswith(CARGO)]
        if not others:
            return MISSED
        command = [str(self.python), "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *others]
        try:
            code = subprocess.run(command, cwd=self.checkout, capture_output=True, timeout=TIMEOUT).returncode
        except subprocess.TimeoutExpired:
            return NOTICED
        return {0: MISSED, 1: NOTICED}.get(code, BROKEN)

    def _cargo(self, *arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[bytes]:
        environment = {**os.environ, "CARGO_TARGET_DIR": str(self.target)}
        folder = self.checkout / "native"
        return subprocess.run(["cargo", *arguments], cwd=folder, env=environment, capture_output=True, timeout=timeout)


def _copy(source: Path, target: Path) -> None:
    if not target.exists() or target.read_bytes() != source.read_bytes():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def tried(copy: Copy, fault: Fault) -> str:
    """Plant a fault, run its tests until one fails, and take it out again. Return the result."""
    test, result = _failing(copy, fault)
    if result == NOTICED and not copy.passes(test):
        print(f"{fault.id}: its tests fail without it", file=sys.stderr)
        return BROKEN
    return result


def _failing(copy: Copy, fault: Fault) -> tuple[str, str]:
    """Return the first test that does not pass with a fault, and its result."""
    text = (copy.checkout / fault.file).read_text(encoding="utf-8")
    try:
        copy.put(fault.file, fault.planted(text))
        is_built = not fault.is_rust
        for test in sorted(fault.tests, key=lambda test: not test.startswith(CARGO)):
            if not is_built and not test.startswith(CARGO):
                copy.build(fault.file)
                is_built = True
            result = copy.run([test])
            if result != MISSED:
                return test, result
        return "", MISSED
    except (ValueError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return "", BROKEN
    finally:
        copy.put(fault.file, text)
        copy.restore()


def page(results: dict[str, str], known: Sequence[Fault]) -> str:
    """Return the text of docs/tests.md."""
    counted = [fault for fault in known if not fault.equivalent and results.get(fault.id) in (NOTICED, MISSED)]
    rooms = sorted({fault.room for fault in counted})
    rows = ["| room | faults | noticed |", "| --- | ---: | ---: |"]
    for room in (*rooms, "all"):
        own = [fault for fault in counted if room in ("all", fault.room)]
        rows.append(f"| {room} | {len(own)} | {sum(results[fault.id] == NOTICED for fault in own)} |")
    date = datetime.date.today().isoformat()
    count = sum(results[fault.id] == NOTICED for fault in counted)
    share = f"{100 * count / len(counted):.0f} %" if counted else "nothing"
    equivalent, left = sum(bool(fault.equivalent) for fault in known), len(known) - len(counted)
    told = f"On {date}, {count} of {len(counted)} faults were noticed ({share})."
    told += f" {equivalent} more {'changes' if equivalent == 1 else 'change'} no answer." if equivalent else ""
    again = left - equivalent
    told += f" {again} more {'was' if again == 1 else 'were'} not planted again." if again > 0 else ""
    missed = [f"- `{fault.file}`: {fault.what}" for fault in counted if results[fault.id] == MISSED]
    text = HEAD + told + "\n\n" + "\n".join(rows) + "\n"
    return text + (f"\n{UNNOTICED}" + "\n".join(missed) + "\n" if missed else "") + _at_random(known)


def _at_random(known: Sequence[Fault]) -> str:
    """Return the section about faults at random places; "" if there are none."""
    drawn = [fault for fault in known if fault.first and not fault.equivalent]
    if not drawn:
        return ""
    rows = ["| room | faults | noticed at first |", "| --- | ---: | ---: |"]
    for room in (*sorted({fault.room for fault in drawn}), "all"):
        own = [fault for fault in drawn if room in ("all", fault.room)]
        rows.append(f"| {room} | {len(own)} | {sum(fault.first == NOTICED for fault in own)} |")
    count = sum(fault.first == NOTICED for fault in drawn)
    told = AT_RANDOM.format(drawn=len(drawn), seed=SEED, count=count, share=f"{100 * count / len(drawn):.0f} %")
    return "\n" + told + "\n".join(rows) + "\n"


def main() -> int:
    """Try all faults, or those that are named, and print each result. Return 1 if one could not be tried."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="keep the copy and the results in FOLDER")
    parser.add_argument("ids", nargs="*", help="try only these faults")
    parser.add_argument("--write", action="store_true", help="write docs/tests.md from the results so far, try nothing")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    kept, known = folder / "results.json", faults()
    results: dict[str, list[str]] = json.loads(kept.read_text()) if kept.exists() else {}
    if options.write:
        PAGE.write_text(page({name: result for name, (_digest, result) in results.items()}, known), encoding="utf-8")
        return 0
    copy = Copy(folder)
    for fault in known:
        if fault.equivalent or (options.ids and fault.id not in options.ids):
            continue
        digest = fault.digest(copy.checkout)
        if results.get(fault.id, [""])[0] != digest or results[fault.id][1] == BROKEN:
            results[fault.id] = [digest, tried(copy, fault)]
            kept.write_text(json.dumps(results, indent=1))
        print(f"{results[fault.id][1]:8} {fault.id}", flush=True)
    return int(any(result == BROKEN for _digest, result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
