"""The import directions of docs/architecture.md, checked by reading the imports: nothing is run or needs to be built.

The rules of the native part are checked the same way, by the paths that its sources name.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.sources import ACCESS, BINDING, ORDER, PROCESSORS, ROOT, imports, modules, room_of, rooms, without_tests

BEFORE_HEAP = ORDER[: ORDER.index("heap")]
# Modules that the package names for type checkers, and from which it imports nothing before first use.
NAMED_BY_PACKAGE = ("api", "errors")
# The only folder that uses gdb's module, and the file that gdb runs at its start.
KNOWS_GDB = ("commands.gdb.", "loader.start")
# What each folder in commands/ may import besides itself; "command" is a folder of one file. The list of all commands
# stands apart: it imports them, and they do not import it.
WITHIN = {
    "inferior_calls": {"inferior_calls"},
    "surface": {"surface", "inferior_calls"},
    "command": {"surface", "inferior_calls"},
    "list": {"command", "surface"},
    "gdb": {"gdb", "list", "surface", "inferior_calls"},
    "shell": {"shell", "list", "surface", "inferior_calls"},
}


def wrong_directions(name: str, text: str) -> list[str]:
    """Return the imports of gdbheap.`name` from modules to its right."""
    part = room_of(f"gdbheap.{name}")
    allowed = {None, "__init__", *(ORDER[: ORDER.index(part) + 1] if part in ORDER else NAMED_BY_PACKAGE)}
    return [dotted for dotted in imports(name, text) if room_of(dotted) not in allowed]


def test_imports_point_left() -> None:
    """Check that no module imports a part to the right of its own."""
    found = {name: wrong_directions(name, path.read_text(encoding="utf-8")) for name, path in modules().items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_the_rooms_are_on_the_page() -> None:
    """Check that docs/architecture.md lists the parts as the code does (scripts/rooms.py --write)."""
    text = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.BEGIN in text and rooms.page(text) == text


def test_no_program_takes_the_place_of_a_standard_module() -> None:
    """Check that no program has the name of a standard module, as ``secrets`` once had: a web framework imported it
    instead."""
    names = {path.stem for path in (ROOT / "tests" / "programs").glob("*.py")}
    standard = {path.stem for path in Path(sysconfig.get_path("stdlib")).iterdir()}
    assert "secrets" in standard and names & standard == set()


def test_one_folder_imports_gdb() -> None:
    """Check that gdb's module is imported only in commands/gdb/ and the file that gdb itself runs."""
    others = {name: path for name, path in modules().items() if not name.startswith(KNOWS_GDB)}
    found = {name: set(imports(name, path.read_text(encoding="utf-8"))) for name, path in others.items()}
    assert [name for name, dotted in found.items() if any(one.partition(".")[0] == "gdb" for one in dotted)] == []


def within(dotted: str) -> str:
    """Return the key of WITHIN for the absolute name of something in gdbheap.commands."""
    parts = dotted.split(".")[2:]
    if parts[:2] == ["surface", "registry"]:
        return "list"
    return parts[0] if parts[0] in WITHIN else "command"


def test_imports_within_commands() -> None:
    """Check that no command imports another, and that neither of shell and gdb imports the other."""
    wrong = []
    for name, path in modules().items():
        if name.startswith("commands."):
            found = imports(name, path.read_text(encoding="utf-8"))
            ours = [dotted for dotted in found if dotted.startswith("gdbheap.commands.")]
            wrong += [(name, dotted) for dotted in ours if within(dotted) not in WITHIN[within(f"gdbheap.{name}")]]
    assert wrong == []


def test_every_part_is_there() -> None:
    """Check that the order lists every existing part, so that a renamed folder cannot escape the rule."""
    parts = {name.split(".")[0] for name in modules()}
    assert parts - {"__init__"} == set(ORDER) - {"_native"}


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("targets.process", "from gdbheap.heap import Heap", ["gdbheap.heap.Heap"]),
        ("targets.process", "from ..answers import holes", ["gdbheap.answers.holes"]),
        ("targets.process", "def f():\n    import gdbheap.report.text.tables", ["gdbheap.report.text.tables"]),
        ("answers.holes", "from gdbheap import heap, commands", ["gdbheap.commands"]),
        ("answers.holes", "from gdbheap import diff, UsageError", ["gdbheap.api.comparing.diff"]),
        ("answers.holes", "import gdbheap\ngdbheap.open(1)\ngdbheap.__file__", ["gdbheap.api.opening.open"]),
        ("answers.holes", "importlib.import_module('gdbheap.report.page')", ["gdbheap.report.page"]),
        ("answers.holes", "from . import ledger\nfrom ..heap import Heap\nimport json", []),
        ("commands.holes", "from gdbheap.answers.holes import holes\nfrom gdbheap import __version__", []),
    ],
)
def test_the_rule_itself(name: str, text: str, wrong: list[str]) -> None:
    """Check that every form of an import to the right is found, and that the others pass."""
    assert wrong_directions(name, text) == wrong


def module_of(dotted: str, known: set[str]) -> str | None:
    """Return the module that defines an absolute name; None for a name of other packages."""
    first, *parts = dotted.split(".")
    for end in range(len(parts), 0, -1) if first == "gdbheap" else ():
        for name in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if name in known:
                return name
    return None


def test_no_modules_import_each_other() -> None:
    """Check that imports between files have no cycles, including imports inside functions.

    An import of a file also imports the packages around it.
    """
    known = modules()
    arrows = {
        name: {
            one
            for dotted in imports(name, path.read_text(encoding="utf-8"))
            if (found := module_of(dotted, set(known)))
            for one in (found, *packages_around(found) - packages_around(name))
        }
        - {name}
        for name, path in known.items()
    }
    assert circles(arrows) == []


def packages_around(name: str) -> set[str]:
    """Return the files of the packages that contain a module: for a.b.c, those of a and of a.b."""
    parts = name.split(".")[:-1]
    return {".".join([*parts[:end], "__init__"]) for end in range(1, len(parts) + 1)}


# Besides the class of an allocator that another one replaces; the replacing one declares this itself.
REPLACED = {
    ("mimalloc", "pymalloc.allocator.PymallocAllocator"),
    ("mallocng", "glibc.allocator.GlibcAllocator"),
    ("oldmalloc", "glibc.allocator.GlibcAllocator"),
    ("oldmalloc", "mallocng.allocator.MallocngAllocator"),
    ("oldmalloc", "mallocng.allocator.need_musl"),
}


def test_no_allocator_imports_from_another_ones_room() -> None:
    """Check that no allocator imports from another's folder; common code is beside their folders."""
    own = {name.split(".")[1] for name in modules() if name.startswith("allocators.") and name.count(".") == 2}
    found = set()
    for name, path in modules().items():
        room = name.split(".")[1] if name.startswith("allocators.") else ""
        for dotted in imports(name, path.read_text(encoding="utf-8")) if room in own else ():
            other = dotted.removeprefix("gdbheap.allocators.")
            if other != dotted and other.split(".")[0] in own - {room}:
                found.add((room, other))
    assert found == REPLACED


# The crates, and the crates of gdbheap that each may use.
STANDS_ON: dict[str, set[str]] = {
    "calls": set(),
    "plan": set(),
    "access": set(),
    "core": {"access", "calls", "plan"},
    "binding": {"access", "core"},
    "recorder": {"calls"},
    "replayer": {"plan"},
}
# Parts of a crate; each may use itself and those before it. Neighbours in one line, except the first, may not use each
# other.
PARTS = {
    "access": [
        ["error", "bytes", "machine", "signals", "folder", "stat", "tables", "patient", "child"],
        ["work"],
        ["testing"],
        ["memory"],
        ["process"],
    ],
    "core": [
        ["bits", "by_address", "top_rows", "mangled", "demangle"],
        ["packed", "source_lines", "symbols"],
        ["allocators"],
        ["python"],
        ["graph", "memory_use"],
        ["structures"],
        ["history", "events"],
    ],
}
# The parts of `access` that make system calls.
UNSAFE = {"child", "signals", "folder", "memory", "process", *PROCESSORS}
# A path of a `use`, up to its semicolon, or in an expression.
USE = re.compile(r"^([ ]*)(?:pub(?:\([a-z]+\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"\bcrate(?:::\w+)+(?!\w|::)")
ABOVE = re.compile(r"(?<!use )\b(?:super::)+\w+(?:::\w+)*(?!\w|::)")
CHILD = re.compile(r"^(?:pub(?:\([a-z]+\))? )?mod (\w+);", re.MULTILINE)


def rust_modules(root: Path) -> dict[str, str]:
    """Return {path of the module, joined with ::: its text}; the crate's own path is ""."""
    found = {}
    for path in root.rglob("*.rs"):
        parts = path.relative_to(root).with_suffix("").parts
        found["::".join(parts[:-1] if parts[-1] in ("mod", "lib") else parts)] = path.read_text(encoding="utf-8")
    return found


def paths(tree: str) -> Iterator[str]:
    """Yield the paths of ``a::{b, c::{d, e}}`` one by one: a::b, a::c::d, a::c::e."""
    prefix, brace, rest = tree.partition("{")
    if not brace:
        yield prefix.split(" as ")[0].strip()
        return
    depth, start, inner = 0, 0, rest[: rest.rindex("}")]
    for place, letter in enumerate(inner + ","):
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            if inner[start:place].strip():
                yield from (prefix.strip() + path for path in paths(inner[start:place].strip()))
            start = place + 1


def rust_imports(name: str, text: str, known: set[str]) -> set[str]:
    """Return the modules of the crate that the module `name` uses, without itself and its own ``mod`` lines."""
    code = re.sub(r"//.*", "", text)
    children = set(CHILD.findall(code))
    wanted = set(PATH.findall(code))
    wanted |= {_from_above(name, path) for path in ABOVE.findall(without_tests(code))}
    for indent, tree in USE.findall(code):
        for path in paths(tree):
            first, _, rest = path.partition("::")
            if first == "super":
                # Inside an inline module, `super` is the file.
                wanted.add(_from_above(f"{name}::tests" if indent else name, path))
            elif first == "self" or first in children:
                wanted.add("::".join(part for part in ("crate", name, rest if first == "self" else path) if part))
            else:
                wanted.add(path)
    found = set()
    for path in (re.sub("^crate::arch", f"crate::{one}", path) for one in sorted(PROCESSORS) for path in wanted):
        parts = path.split("::")
        if parts[0] != "crate":
            continue
        while parts and "::".join(parts[1:]) not in known:
            parts.pop()
        found.add("::".join(parts[1:]))
    return found - {name}


def _from_above(name: str, path: str) -> str:
    """Return a path that begins with ``super::``, in the module `name`, as a path from the crate."""
    above, parts = name.split("::"), path.split("::")
    count = next((place for place, part in enumerate(parts) if part != "super"), len(parts))
    return "::".join(part for part in ("crate", *above[: max(0, len(above) - count)], *parts[count:]) if part)


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Return the names that are on a cycle."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        left = [start]
        while left:
            for name in arrows.get(left.pop(), set()) - seen:
                seen.add(name)
                left.append(name)
        return seen

    return sorted(name for name in arrows if name in reached(name))


def rust_arrows(root: Path) -> dict[str, set[str]]:
    """Return {module: modules that it uses}."""
    known = rust_modules(root)
    return {name: rust_imports(name, text, set(known)) for name, text in known.items()}


CRATES = sorted(path.parent.name for path in (ROOT / "native").glob("*/Cargo.toml"))


@pytest.mark.parametrize("crate", CRATES)
def test_no_rust_modules_import_each_other(crate: str) -> None:
    """Check that the modules of a crate have no cycles."""
    assert circles(rust_arrows(ROOT / "native" / crate / "src")) == []


@pytest.mark.parametrize("crate", PARTS)
def test_parts_of_a_crate_point_left(crate: str) -> None:
    """Check that no part uses one to its right, nor a neighbour in its line except in the first line."""
    rank = {part: place for place, line in enumerate(PARTS[crate]) for part in line}
    wrong = []
    for name, targets in rust_arrows(ROOT / "native" / crate / "src").items():
        part = name.split("::")[0]
        if not part or part in PROCESSORS:
            continue
        for target in {target.split("::")[0] for target in targets} - {part, *PROCESSORS}:
            beside = rank[target] == rank[part] and rank[part] > 0
            if rank[target] > rank[part] or beside:
                wrong.append(f"{name} -> {target}")
    assert wrong == []


@pytest.mark.parametrize("crate", PARTS)
def test_every_part_of_a_crate_has_a_place(crate: str) -> None:
    """Check that the order lists every existing part, so that a renamed folder cannot escape the rule."""
    parts = {name.split("::")[0] for name in rust_modules(ROOT / "native" / crate / "src")} - {""}
    assert parts - PROCESSORS == {part for line in PARTS[crate] for part in line}


def test_crates_point_left() -> None:
    """Check that a crate uses only the crates below it, in its manifest and in its sources."""
    assert set(STANDS_ON) == set(CRATES)
    for crate, allowed in STANDS_ON.items():
        folder = ROOT / "native" / crate
        files = [folder / "Cargo.toml", *folder.rglob("*.rs")]
        others = set(STANDS_ON) - allowed - {crate}
        text = "\n".join(path.read_text(encoding="utf-8") for path in files)
        assert [one for one in others if re.search(rf"\bgdbheap[-_]{one}\b", text)] == [], crate


def test_the_crates_are_on_the_page() -> None:
    """Check that docs/architecture.md lists the crates, each with the crates below it."""
    page = rooms.PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z`/, ]+) \|[^|]*\|([^|]*)\|[^|]*\|$", page, re.MULTILINE)
    said = {crate: set(re.findall(r"\w+", on)) for names, on in rows for crate in re.findall(r"(\w+)/", names)}
    assert said == STANDS_ON


@pytest.mark.parametrize("crate", PARTS)
def test_only_the_binding_knows_pyo3(crate: str) -> None:
    """Check that neither the sources of these crates nor their manifests name pyo3."""
    files = [*(ROOT / "native" / crate).rglob("*.rs"), ROOT / "native" / crate / "Cargo.toml"]
    assert [str(path) for path in files if "pyo3" in path.read_text(encoding="utf-8")] == []


FORBIDS = "#![forbid(unsafe_code)]"
UNSAFE_CODE = re.compile(r"\bunsafe\s*(\{|fn|impl|extern)")


def test_only_access_is_unsafe() -> None:
    """Check that only one of the crates that read a target may use unsafe code: the others forbid it, except the
    binding, which reports Ctrl-C to the interpreter."""
    for crate in ("core", "calls", "plan"):
        assert FORBIDS in rust_modules(ROOT / "native" / crate / "src")[""], crate
    unsafe = {name: UNSAFE_CODE.findall(text) for name, text in rust_modules(BINDING).items()}
    assert {name: len(places) for name, places in unsafe.items() if places} == {"memory": 1}
    assert "unsafe { pyo3::ffi::PyErr_SetInterrupt() };" in rust_modules(BINDING)["memory"]


def test_only_system_calls_are_unsafe() -> None:
    """Check that each part of `access` without system calls forbids unsafe code to itself and its parts."""
    found = rust_modules(ACCESS)
    forbidden = {name for name, text in found.items() if FORBIDS in text}
    tops = {name.split("::")[0] for name in found} - {""}
    assert tops - UNSAFE <= forbidden
    assert [name for name in forbidden if UNSAFE_CODE.search(found[name])] == []
    files = {name for name in found if name and not any(other.startswith(f"{name}::") for other in found)}
    assert [name for name in sorted(files - forbidden) if not UNSAFE_CODE.search(found[name])] == []


def of_arch(text: str) -> set[str]:
    """Return {module::name} of all names that a source uses from the processor's folder."""
    code = re.sub(r"//.*", "", text)
    found = set(re.findall(r"\bcrate::arch::(\w+::\w+)", code))
    for _indent, tree in USE.findall(code):
        for path in paths(tree):
            inside = path.removeprefix("crate::arch::")
            module, _, name = inside.partition("::")
            if inside != path and name in ("", "self"):
                found |= {f"{module}::{one}" for one in re.findall(rf"\b{module}::(\w+)", code)}
            elif inside != path:
                found.add(inside)
    return found


@pytest.mark.parametrize("processor", sorted(PROCESSORS))
def test_each_processor_has_what_is_asked(processor: str) -> None:
    """Check that each processor's folder has all names that are used from `arch`, declared as for x86-64."""
    found = rust_modules(ACCESS)
    others = [text for module, text in found.items() if module.split("::")[0] not in PROCESSORS]
    asked = {name for text in others for name in of_arch(text)}
    assert {"registers::read", "system_call::prepare", "call::look", "stub::plan", "cache::fetch"} <= asked
    assert {one for one in asked if signature(found, processor, one) != signature(found, "x86_64", one)} == set()


def test_what_differs_between_processors_is_found() -> None:
    """Check that each form of a name is found, and that another type counts as another declaration."""
    text = "use crate::arch::{a, b::{self, C}};\nfn f() { a::g(); b::h(); crate::arch::d::k() }"
    assert of_arch(text) == {"a::g", "b::h", "b::C", "d::k"}
    found = {
        "x::a": "pub(crate) fn g(tid: i32, _: &[u64]) -> u64 {\n",
        "y::a": "pub(crate) fn g(_: i32, x: &[u64]) -> u64 {",
    }
    assert signature(found, "x", "a::g") == signature(found, "y", "a::g")
    found["y::a"] = "pub(crate) fn g(_: i64, x: &[u64]) -> u64 {"
    assert signature(found, "x", "a::g") != signature(found, "y", "a::g")


def signature(found: dict[str, str], processor: str, dotted: str) -> str:
    """Return the declaration in a folder of a name that others use, without values and argument names."""
    module, _, name = dotted.partition("::")
    text = found.get(f"{processor}::{module}", "")
    form = rf"struct {name}\b|(?:const )?(?:const|fn) {name}\b[^;{{=]*"
    declared = re.search(rf"^pub(?:\(crate\))? (?:{form})", text, re.MULTILINE)
    assert declared, f"{processor} has no {dotted}"
    return re.sub(r"\b\w+: (?=[&\w\[])", "", re.sub(r",?\s+", " ", declared[0])).replace("( ", "(").strip()


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a::b", "use crate::a::c::{X, Y};\nuse std::io;", {"a::c"}),
        ("a::b", "use super::c::X;\nfn f() { crate::d::g() }", {"a::c", "d"}),
        ("a", "pub mod b;\npub(crate) mod c;\npub use b::X;\nuse self::c::{Y};", {"a::b", "a::c"}),
        ("a::b", "mod tests {\n    use super::*;\n}\n// use crate::d;", set()),
        ("a::b", "fn f() { super::c::g(); let x = super::super::d::X; }", {"a::c", "d"}),
        ("a::b", "use super::super::{a::c, d::X};", {"a::c", "d"}),
        ("a::b", "#[cfg(test)]\nmod tests {\n    use super::super::c::X;\n    fn f() { super::g() }\n}", {"a::c"}),
        ("d", "use crate::{a::{b::X, c}, d::Z};", {"a::b", "a::c"}),
    ],
)
def test_the_rust_rule_itself(name: str, text: str, named: set[str]) -> None:
    """Check each form in which one module uses another."""
    assert rust_imports(name, text, {"", "a", "a::b", "a::c", "d"}) == named


def test_a_circle_is_found() -> None:
    """Check that modules on a cycle are named, and that modules that only lead to it are not."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]
