"""Facts that differ between machines are in one place of each part: no other module knows a page size, a word size
or a limit.

The sources are read, nothing is run. Facts of the kernel or of a file format that hold on every machine are allowed
by file and reason.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.scripts import ROOT
from support.sources import ACCESS, BINDING, CORE, PROCESSORS, modules, without_tests

MACHINE = "machines.machine"
LIMITS = (1 << 47, 1 << 48, 1 << 63, 1 << 64)
# The size of a page, the offsets below it as a mask, and the number of their bits.
PAGE, BELOW, BITS = 4096, 4095, 12
WORD = 8
NAMES = {"fs_base", "getpagesize", "page_size", "PAGESIZE", "PAGE_SIZE", "SC_PAGESIZE", "SC_PAGE_SIZE", "x86_64"}
SHIFTS = {ast.LShift: "<<", ast.RShift: ">>"}
# Formats of the module struct with a word of 64 bits; P and N of Machine.structure are words of the machine.
FORMAT = re.compile(r"[<>=!@]?[\dxcbBhHiIlLqQsd]*[qQ][\dxcbBhHiIlLqQsd]*")
ALLOWED: dict[str, set[object]] = {
    # ELF files of 64 bits.
    "machines.image": {"<QQQIHHHHHH", "<IIQQ8xQQQ", "<IIQQQQIIQQ"},
    "targets.source_lines": {"<I4xQ8x"},
    # NT_FILE's own field.
    "targets.cores.notes": {"page_size"},
    # /proc/PID/pagemap: an entry is of 64 bits on every machine.
    "host.procfs": {1 << 63, "<1Q", "* 8", "// 8"},
    # The kernel's answer about a pidfd has the same form on every machine.
    "host.exit_status": {"<QQ11Ii"},
    # gdbheap's own files: words of 64 bits on every machine.
    "tracing.log": {"<4sIQ", "<QQ", 1 << 63},
    "tracing.recorder_files": {"<21Q"},
    "export.batches": {1 << 63, 1 << 64},
    # Numbers in gdbheap's documents, of 64 bits with or without a sign; and the length of a text.
    "documents": {1 << 63, 1 << 64, 4 << 10},
    "answers.accounting.records": {1 << 64},
    # The name of a language.
    **dict.fromkeys(
        ("commands.sql", "commands.surface.registry", "commands.shell.mcp.questions", "export.query"), {"sql"}
    ),
    # _Py_DebugOffsets: every member is a uint64_t.
    "layout.debug_offsets": {"<8sQQ", "<1Q"},
    # CPython's layouts as data: a deque's block.
    "contents.python.objects.owned": {"* 8"},
    # Pages of gdbheap's own process, and of others on this machine.
    **dict.fromkeys(("host.headroom", "processes.family", "watching.memory_readings"), {"getpagesize"}),
    # glibc's links and jemalloc's sizes: the numbers are in their sources, whatever the size of a page is.
    "allocators.glibc.arenas": {">> 12"},
    "allocators.request_sizes": {4095},
    # Bits and bytes.
    "contents.python.text.disclosure": {"// 8"},
    # Code and registers of x86-64 itself.
    "commands.inferior_calls.native_caller": {1 << 63, "* 8"},
}
OPERATORS = {ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%"}


def number(node: ast.AST) -> int | None:
    """Return the value of a literal, or of one shifted by another."""
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.LShift):
        left, right = number(node.left), number(node.right)
        return left << right if left == 1 and right is not None and right < 100 else None
    return None


def text(node: ast.AST) -> str | None:
    """Return a literal text; the expression in each pair of braces counts as 1."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "1" for part in node.values)
        return "".join(map(str, parts))
    return None


def name(node: ast.AST) -> str | None:
    """Return a name that is used, set, accessed or imported."""
    known = {ast.Name: "id", ast.Attribute: "attr", ast.arg: "arg", ast.alias: "name", ast.keyword: "arg"}
    field = known.get(type(node))
    return getattr(node, field) if field else None


def of_a_machine(source: str) -> Iterator[tuple[int, object]]:
    """Yield (line, fact) for every fact of one machine in Python's source."""
    for node in ast.walk(ast.parse(source)):
        line, value, literal, called = getattr(node, "lineno", 0), number(node), text(node), name(node)
        if value in (PAGE, BELOW, *LIMITS):
            yield line, value
        shift = SHIFTS.get(type(node.op)) if isinstance(node, (ast.BinOp, ast.AugAssign)) else None
        if shift and number(node.right if isinstance(node, ast.BinOp) else node.value) == BITS:
            yield line, f"{shift} {BITS}"
        if literal and (FORMAT.fullmatch(literal) and len(literal) > 1 or literal in NAMES):
            yield line, literal
        if called in NAMES:
            yield line, called
        if (
            isinstance(node, ast.BinOp)
            and type(node.op) in OPERATORS
            and WORD in (number(node.left), number(node.right))
        ):
            yield line, f"{OPERATORS[type(node.op)]} {WORD}"


def test_python_asks_the_machine() -> None:
    """Check that only one module has the size of a page or a word, a limit of addresses, or a name of a machine's
    facts."""
    found = {
        name: of_a_machine(path.read_text(encoding="utf-8")) for name, path in modules().items() if name != MACHINE
    }
    wrong = [(name, *one) for name, ones in found.items() for one in ones if one[1] not in ALLOWED.get(name, set())]
    assert wrong == []


def test_nothing_is_allowed_in_vain() -> None:
    """Check that each exception in the list is still needed."""
    unused = {
        (module, what)
        for module, allowed in ALLOWED.items()
        for what in allowed - {what for _line, what in of_a_machine(modules()[module].read_text(encoding="utf-8"))}
    }
    assert unused == set()


# Files of the native part that may have facts of a machine, and which.
RUST = re.compile(
    r"\b(?:4_?09[56]|0x1000|0x[fF]{3})(?:_?[ui]\w+)?\b|\b1(?:_?u64)? << (?:47|48|63|64)\b|(?:<<|>>)=? 12\b|\bPAGE\b"
)
RUST_ALLOWED = {
    ACCESS / "machine.rs": {"<< 12"},
    # /proc/PID/pagemap's bit for a page that is there.
    ACCESS / "memory" / "pages.rs": {"1 << 63"},
    # Numbers of other programs' sources, whatever the size of a page is: glibc's links and bins, jemalloc's and
    # mallocng's bits and sizes.
    CORE / "allocators" / "glibc" / "lists.rs": {">> 12"},
    CORE / "allocators" / "glibc" / "running.rs": {">> 12"},
    CORE / "allocators" / "glibc" / "bins" / "bin.rs": {">> 12"},
    CORE / "allocators" / "jemalloc" / "layout.rs": {"0xfff"},
    CORE / "allocators" / "mallocng" / "layout.rs": {">> 12", "4095"},
    # Counts.
    CORE / "graph" / "edges.rs": {"<< 12"},
    CORE / "memory_use" / "copies.rs": {"<< 12"},
    CORE / "allocators" / "glibc" / "bins" / "sound.rs": {"<< 12"},
    CORE / "structures" / "rust" / "channels.rs": {"1 << 48"},
}


def of_a_machine_in_rust(source: str) -> set[str]:
    """Return the facts of one machine in a Rust source, without its own tests, at its end, which may have any."""
    return set(RUST.findall(re.sub(r"//.*", "", without_tests(source))))


@pytest.mark.parametrize("root", [ACCESS, CORE, BINDING], ids=["access", "core", "binding"])
def test_rust_asks_the_machine(root: Path) -> None:
    """Check that only machine.rs has the size of a page or the end of the addresses, and that every exception is
    still needed. A file testing.rs, built only with tests, may have any."""
    for path in root.rglob("*.rs"):
        if path.name == "testing.rs":
            continue
        found = of_a_machine_in_rust(path.read_text(encoding="utf-8"))
        assert found == RUST_ALLOWED.get(path, set()), path.relative_to(ROOT)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("x = 4096\ny = 0x1000", [4096, 4096]),
        ("x = at & ~0xFFF\ny = at >> 12\ny <<= 12", [4095, ">> 12", "<< 12"]),
        ("x = at // mmap.PAGESIZE * resource.getpagesize()", ["PAGESIZE", "getpagesize"]),
        ("if a < 1 << 47 or a >= 1 << 64: pass", [1 << 47, 1 << 64]),
        ("struct.unpack(f'<{n}Q', raw)\nstruct.Struct('<q')", ["<1Q", "<q"]),
        ("n = len(raw) // 8\nm = 8 * n % 8", ["// 8", "* 8", "% 8"]),
        ("def f(fs_base): return thread.fs_base", ["fs_base", "fs_base"]),
        ("from gdbheap.targets.ranges import PAGE_SIZE", ["PAGE_SIZE"]),
        ("is_it = target.machine.name == 'x86_64'", ["x86_64"]),
        ("x = 4 << 10\ny = 1 << 46\nz = 'Q'\nt = 'Quit'\nu = '<quote>'\nraw[:8]", []),
    ],
)
def test_the_rule_itself(source: str, found: list[object]) -> None:
    """Check that every form is found, and that other forms pass."""
    assert sorted(map(str, (what for _line, what in of_a_machine(source)))) == sorted(map(str, found))


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("const A: u64 = 4096;", {"4096"}),
        ("let b = at / 4_096usize;", {"4_096usize"}),
        ("word < 1 << 47", {"1 << 47"}),
        ("at & !0xfff == number << 12 || at >> 12 == 7", {"0xfff", "<< 12", ">> 12"}),
        ("at / PAGE * PAGE", {"PAGE"}),
        ("const PAGE_IS_HUGE: u64 = 1 << 6; // 4096", set()),
        ("let e = 4096;\n#[cfg(test)]\nmod tests { const PAGE: u64 = 1 << 12; }", {"4096"}),
        ("let c = 40960; let d = 1 << 120;", set()),
        ("#[cfg(test)]\nmod testing;\nlet e = 4096;", {"4096"}),
    ],
)
def test_the_rust_rule_itself(source: str, found: set[str]) -> None:
    """Check that every form in Rust is found, and that other forms pass."""
    assert of_a_machine_in_rust(source) == found


def test_glibc_has_a_shift_of_its_own() -> None:
    """Check that links are hidden by twelve bits, whatever the page size is (malloc.c, PROTECT_PTR)."""
    assert ">> 12" in (CORE / "allocators" / "glibc" / "lists.rs").read_text(encoding="utf-8")


# Names of processors and of their registers. Only these may have them: the folders of `access` for each processor, its
# lib.rs, which chooses the folder, and machine.rs, since cores of each machine are read on every other one.
PROCESSOR = re.compile(
    r"\b(?:x86(?:[-_]64)?|amd64|aarch64|arm64|x32|iced_x86|user_(?:pt_)?regs\w*|R_(?:X86_64|AARCH64)_\w+"
    r"|[er](?:ax|bx|cx|dx|si|di|bp|sp|ip)|orig_rax|r(?:8|9|1[0-5])|fs_base|tpidr\w*|target_arch)\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize("root", [ACCESS, CORE, BINDING], ids=["access", "core", "binding"])
def test_one_folder_knows_the_processor(root: Path) -> None:
    """Check that no other source names a processor, not even in a comment."""
    found = {}
    for path in root.rglob("*.rs"):
        place = path.relative_to(root)
        if place.parts[0] not in PROCESSORS and path not in (ACCESS / "lib.rs", ACCESS / "machine.rs"):
            found[str(place)] = set(PROCESSOR.findall(path.read_text(encoding="utf-8")))
    assert {place: names for place, names in found.items() if names} == {}
    assert PROCESSOR.findall("registers[RSP] + EAX; R_X86_64_COPY; user_regs_struct; r10; #[cfg(target_arch = 1)]") == [
        "RSP", "EAX", "R_X86_64_COPY", "user_regs_struct", "r10", "target_arch",
    ]  # fmt: skip


# Modules of gdbheap that run or call code of x86-64, or name a machine for another reason.
PROCESSOR_ALLOWED = {
    "machines.image": {"x86_64", "aarch64"},
    # The note is named after its machine.
    "targets.cores.notes": {"aarch64"},
    # Code is called and patched, and libraries are preloaded, on x86-64 alone.
    "commands.inferior_calls.native_caller": {"rax", "x86-64"},
    "commands.inferior_calls.malloc_stats_call": {"x86_64"},
    "targets.code_places": {"x86-64"},
    "targets.following": {"x86-64"},
    "tracing.recorder_files": {"x86-64"},
    "tracing.replayer": {"x86-64"},
    "tracing.replay_settings": {"x86-64", "x86_64"},
    # An example for gdb.
    "commands.gdb.help": {"rdi"},
}


def test_one_record_knows_the_processor() -> None:
    """Check that no other Python module names a processor, not even in a comment, and that every exception is still
    needed."""
    found = {
        name: {word.lower() for word in PROCESSOR.findall(path.read_text(encoding="utf-8"))}
        for name, path in modules().items()
        if name != MACHINE
    }
    assert {name: words for name, words in found.items() if words} == PROCESSOR_ALLOWED


def test_code_of_x86_is_decoded_on_x86_alone() -> None:
    """Check that a build for another processor does not need the library."""
    manifests = {path.parent.name: path.read_text(encoding="utf-8") for path in (ROOT / "native").glob("*/Cargo.toml")}
    assert [crate for crate, text in manifests.items() if "iced-x86" in text] == ["access"]
    before, where, after = manifests["access"].partition("[target.'cfg(target_arch = \"x86_64\")'.dependencies]")
    assert where and "iced-x86" in after and "iced-x86" not in before
