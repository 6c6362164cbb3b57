"""The import directions of docs/architecture.md, kept by reading the imports: nothing is run or needs to be built.

The native half's rules are kept the same way, by the paths that its sources name.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scripts import script

rooms = script("rooms")
ORDER, imports, modules, room_of = rooms.ORDER, rooms.imports, rooms.modules, rooms.room_of
ROOT = Path(__file__).resolve().parent.parent
BEFORE_HEAP = ORDER[: ORDER.index("heap")]
# What the package names for type checkers, of which it imports nothing before it is used.
NAMED_BY_PACKAGE = ("api", "errors")
# The only folder that knows that gdb exists, and what gdb runs at its start.
KNOWS_GDB = ("commands.gdb.", "loader.start")
# Within commands/, what each folder may import besides itself; "command" is a file of one. The list of all commands is
# a part of its own: it imports them, and they know nothing of it.
WITHIN = {
    "inferior_calls": {"inferior_calls"},
    "surface": {"surface", "inferior_calls"},
    "command": {"surface", "inferior_calls"},
    "list": {"command", "surface"},
    "gdb": {"gdb", "list", "surface", "inferior_calls"},
    "shell": {"shell", "list", "surface", "inferior_calls"},
}


def wrong_directions(name: str, text: str) -> list[str]:
    """Return what gdbheap.`name` imports from its right."""
    part = room_of(f"gdbheap.{name}")
    allowed = {None, "__init__", *(ORDER[: ORDER.index(part) + 1] if part in ORDER else NAMED_BY_PACKAGE)}
    return [dotted for dotted in imports(name, text) if room_of(dotted) not in allowed]


def test_imports_point_left() -> None:
    """No module imports a part that stands to the right of its own."""
    found = {name: wrong_directions(name, path.read_text(encoding="utf-8")) for name, path in modules().items()}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


def test_the_rooms_are_on_the_page() -> None:
    """docs/architecture.md has them as the code does (scripts/rooms.py --write)."""
    text = rooms.PAGE.read_text(encoding="utf-8")
    assert rooms.BEGIN in text and rooms.page(text) == text


def test_no_program_takes_the_place_of_a_standard_module() -> None:
    """A program that imports a standard module does not get one of ours: a web framework did, by ``secrets``."""
    names = {path.stem for path in (ROOT / "tests" / "programs").glob("*.py")}
    standard = {path.stem for path in Path(sysconfig.get_path("stdlib")).iterdir()}
    assert "secrets" in standard and names & standard == set()


def test_one_folder_imports_gdb() -> None:
    """Nothing outside commands/gdb/ and what gdb itself runs knows that gdb exists."""
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
    """No command knows another one, and neither place where they are typed knows the other."""
    wrong = []
    for name, path in modules().items():
        if name.startswith("commands."):
            found = imports(name, path.read_text(encoding="utf-8"))
            ours = [dotted for dotted in found if dotted.startswith("gdbheap.commands.")]
            wrong += [(name, dotted) for dotted in ours if within(dotted) not in WITHIN[within(f"gdbheap.{name}")]]
    assert wrong == []


def test_every_part_is_there() -> None:
    """The order names what exists, so that a renamed folder cannot escape the rule."""
    parts = {name.split(".")[0] for name in modules()}
    assert parts - {"__init__"} == set(ORDER) - {"_native"}


@pytest.mark.parametrize(
    ("name", "text", "wrong"),
    [
        ("targets.process", "from gdbheap.heap import Heap", ["gdbheap.heap.Heap"]),
        ("targets.process", "from ..answers import holes", ["gdbheap.answers.holes"]),
        ("targets.process", "def f():\n    import gdbheap.report.text.tables", ["gdbheap.report.text.tables"]),
        ("answers.holes", "from gdbheap import heap, commands", ["gdbheap.commands"]),
        ("answers.holes", "from . import ledger\nfrom ..heap import Heap\nimport json", []),
        ("commands.holes", "from gdbheap.answers.holes import holes\nfrom gdbheap import __version__", []),
    ],
)
def test_the_rule_itself(name: str, text: str, wrong: list[str]) -> None:
    """The check finds each form of an import that points right, and lets the others be."""
    assert wrong_directions(name, text) == wrong


def module_of(dotted: str, known: set[str]) -> str | None:
    """Return the module that the absolute name of something is of; None for other people's."""
    first, *parts = dotted.split(".")
    for end in range(len(parts), 0, -1) if first == "gdbheap" else ():
        for name in (".".join(parts[:end]), ".".join([*parts[:end], "__init__"])):
            if name in known:
                return name
    return None


def test_no_modules_import_each_other() -> None:
    """Arrows between files never lead back, those of imports inside of functions included."""
    known = modules()
    arrows = {
        name: {
            found
            for dotted in imports(name, path.read_text(encoding="utf-8"))
            if (found := module_of(dotted, set(known)))
        }
        - {name}
        for name, path in known.items()
    }
    assert circles(arrows) == []


# Beside the class of an allocator whose place another one takes, which this says of itself.
REPLACED = {
    ("mimalloc", "pymalloc.allocator.PymallocAllocator"),
    ("mallocng", "glibc.allocator.GlibcAllocator"),
    ("oldmalloc", "glibc.allocator.GlibcAllocator"),
    ("oldmalloc", "mallocng.allocator.MallocngAllocator"),
    ("oldmalloc", "mallocng.allocator.need_musl"),
}


def test_no_allocator_imports_from_another_ones_room() -> None:
    """What several have in common stands beside their folders."""
    own = {name.split(".")[1] for name in modules() if name.startswith("allocators.") and name.count(".") == 2}
    found = set()
    for name, path in modules().items():
        room = name.split(".")[1] if name.startswith("allocators.") else ""
        for dotted in imports(name, path.read_text(encoding="utf-8")) if room in own else ():
            other = dotted.removeprefix("gdbheap.allocators.")
            if other != dotted and other.split(".")[0] in own - {room}:
                found.add((room, other))
    assert found == REPLACED


ACCESS = ROOT / "native" / "access" / "src"
CORE = ROOT / "native" / "core" / "src"
BINDING = ROOT / "native" / "binding" / "src"
# Crates, and which of ours each may name.
STANDS_ON: dict[str, set[str]] = {
    "calls": set(),
    "plan": set(),
    "access": set(),
    "core": {"access", "calls", "plan"},
    "binding": {"access", "core"},
    "recorder": {"calls"},
    "replayer": {"plan"},
}
# Parts of a crate; each may name itself and those before it, but for its neighbours in a line that is not the first.
PARTS = {
    "access": [
        ["error", "bytes", "machine", "signals", "folder", "stat", "tables", "patient", "child"],
        ["work"],
        ["testing"],
        ["memory"],
        ["process"],
    ],
    "core": [
        ["bits", "by_address", "firsts", "mangled", "demangle"],
        ["packed", "symbols"],
        ["allocators"],
        ["python"],
        ["graph", "memory_use"],
        ["structures"],
        ["history", "events"],
    ],
}
# Folders of `access`, one for each processor; `arch` is that of the one which is built for. They stand beside the
# others, file by file.
PROCESSORS = {"x86_64", "aarch64"}
# Parts of `access` where system calls are made.
UNSAFE = {"child", "signals", "folder", "memory", "process", *PROCESSORS}
# A path from a `use`, up to its semicolon, or in an expression.
USE = re.compile(r"^([ ]*)(?:pub(?:\([a-z]+\))? )?use ([^;]+);", re.MULTILINE)
PATH = re.compile(r"\bcrate(?:::\w+)+")
CHILD = re.compile(r"^(?:pub(?:\([a-z]+\))? )?mod (\w+);", re.MULTILINE)


def rust_modules(root: Path) -> dict[str, str]:
    """Return {path of the module, joined with ::: its text}; the crate's own is ""."""
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
    """Return the modules of the crate that the module `name` names, without itself and its own ``mod`` lines."""
    code = re.sub(r"//.*", "", text)
    children = set(CHILD.findall(code))
    wanted = set(PATH.findall(code))
    for indent, tree in USE.findall(code):
        for path in paths(tree):
            first, _, rest = path.partition("::")
            if first == "super":
                # Inside of a module that stands in the file itself, `super` is the file.
                above = name if indent else name.rpartition("::")[0]
                wanted.add("::".join(part for part in ("crate", above, rest) if part))
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


def circles(arrows: dict[str, set[str]]) -> list[str]:
    """Return the names from which arrows lead back to where they began."""

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
    """Return {module: modules that it names}."""
    known = rust_modules(root)
    return {name: rust_imports(name, text, set(known)) for name, text in known.items()}


CRATES = sorted(path.parent.name for path in (ROOT / "native").glob("*/Cargo.toml"))


@pytest.mark.parametrize("crate", CRATES)
def test_no_rust_modules_import_each_other(crate: str) -> None:
    """Arrows between the modules of a crate never lead back."""
    assert circles(rust_arrows(ROOT / "native" / crate / "src")) == []


@pytest.mark.parametrize("crate", PARTS)
def test_parts_of_a_crate_point_left(crate: str) -> None:
    """No part names one to its right, nor a neighbour in its line but in the first."""
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
    """The order names what exists, so that a renamed folder cannot escape the rule."""
    parts = {name.split("::")[0] for name in rust_modules(ROOT / "native" / crate / "src")} - {""}
    assert parts - PROCESSORS == {part for line in PARTS[crate] for part in line}


def test_crates_point_left() -> None:
    """A crate names no other one of ours than those it stands on, neither in its manifest nor in its sources."""
    assert set(STANDS_ON) == set(CRATES)
    for crate, allowed in STANDS_ON.items():
        folder = ROOT / "native" / crate
        files = [folder / "Cargo.toml", *folder.rglob("*.rs")]
        others = set(STANDS_ON) - allowed - {crate}
        text = "\n".join(path.read_text(encoding="utf-8") for path in files)
        assert [one for one in others if re.search(rf"\bgdbheap[-_]{one}\b", text)] == [], crate


def test_the_crates_are_on_the_page() -> None:
    """docs/architecture.md has them, with what each stands on."""
    page = rooms.PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`[a-z`/, ]+) \|[^|]*\|([^|]*)\|[^|]*\|$", page, re.MULTILINE)
    said = {crate: set(re.findall(r"\w+", on)) for names, on in rows for crate in re.findall(r"(\w+)/", names)}
    assert said == STANDS_ON


@pytest.mark.parametrize("crate", PARTS)
def test_only_the_binding_knows_pyo3(crate: str) -> None:
    """Neither a source of these crates nor their manifests name it."""
    files = [*(ROOT / "native" / crate).rglob("*.rs"), ROOT / "native" / crate / "Cargo.toml"]
    assert [str(path) for path in files if "pyo3" in path.read_text(encoding="utf-8")] == []


FORBIDS = "#![forbid(unsafe_code)]"
UNSAFE_CODE = re.compile(r"\bunsafe\s*(\{|fn|impl|extern)")


def test_only_access_is_unsafe() -> None:
    """Of the crates that read a target one alone may be: the others forbid it, but for the binding, which tells the
    interpreter of Ctrl-C."""
    for crate in ("core", "calls", "plan"):
        assert FORBIDS in rust_modules(ROOT / "native" / crate / "src")[""], crate
    unsafe = {name: UNSAFE_CODE.findall(text) for name, text in rust_modules(BINDING).items()}
    assert {name: len(places) for name, places in unsafe.items() if places} == {"memory": 1}
    assert "unsafe { pyo3::ffi::PyErr_SetInterrupt() };" in rust_modules(BINDING)["memory"]


def test_only_system_calls_are_unsafe() -> None:
    """Each part of `access` but those that make system calls forbids it to itself and to all below."""
    found = rust_modules(ACCESS)
    forbidden = {name for name, text in found.items() if FORBIDS in text}
    tops = {name.split("::")[0] for name in found} - {""}
    assert tops - UNSAFE <= forbidden
    assert [name for name in forbidden if UNSAFE_CODE.search(found[name])] == []
    files = {name for name in found if name and not any(other.startswith(f"{name}::") for other in found)}
    assert [name for name in sorted(files - forbidden) if not UNSAFE_CODE.search(found[name])] == []


def of_arch(text: str) -> set[str]:
    """Return {module::name} of all that a source names of the processor's folder."""
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
    """The folder of each has all that others name of `arch`, declared as x86-64's is."""
    found = rust_modules(ACCESS)
    others = [text for module, text in found.items() if module.split("::")[0] not in PROCESSORS]
    asked = {name for text in others for name in of_arch(text)}
    assert {"registers::read", "system_call::prepare", "call::look", "stub::plan", "cache::fetch"} <= asked
    assert {one for one in asked if signature(found, processor, one) != signature(found, "x86_64", one)} == set()


def test_what_differs_between_processors_is_found() -> None:
    """Each form of a name is seen, and another type is another declaration."""
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
    """Return how a folder declares something that others name, without values and the names of arguments."""
    module, _, name = dotted.partition("::")
    text = found.get(f"{processor}::{module}", "")
    declared = re.search(rf"^pub(?:\(crate\))? (?:const )?(?:const|fn) {name}\b[^;{{=]*", text, re.MULTILINE)
    assert declared, f"{processor} has no {dotted}"
    return re.sub(r"\b\w+: (?=[&\w])", "", re.sub(r",?\s+", " ", declared[0])).replace("( ", "(").strip()


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("a::b", "use crate::a::c::{X, Y};\nuse std::io;", {"a::c"}),
        ("a::b", "use super::c::X;\nfn f() { crate::d::g() }", {"a::c", "d"}),
        ("a", "pub mod b;\npub(crate) mod c;\npub use b::X;\nuse self::c::{Y};", {"a::b", "a::c"}),
        ("a::b", "mod tests {\n    use super::*;\n}\n// use crate::d;", set()),
        ("d", "use crate::{a::{b::X, c}, d::Z};", {"a::b", "a::c"}),
    ],
)
def test_the_rust_rule_itself(name: str, text: str, named: set[str]) -> None:
    """The check finds each form in which one module names another."""
    assert rust_imports(name, text, {"", "a", "a::b", "a::c", "d"}) == named


def test_a_circle_is_found() -> None:
    """What leads back is named, what only leads there is not."""
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == ["b", "c"]
