"""Numbers, tables, sentences and the JSON envelope, for made-up answers: no test here needs a target."""

from __future__ import annotations

import dataclasses
import json
import random
import re
from typing import Any

import pytest

from gdbheap.allocators.allocator import Allocator, KeepReason
from gdbheap.allocators.registry import KINDS
from gdbheap.answers.accounting.describing import BlockKind
from gdbheap.answers.arenas import Arena, ArenaChoice, ArenaHeap, Arenas, Bins, Mmapped, ThreadCache, Total
from gdbheap.answers.at import At, AtMapping, Block, Object, Owner
from gdbheap.answers.buffers import Buffer, Buffers
from gdbheap.answers.check import Check
from gdbheap.answers.chunks import Chunk, Chunks
from gdbheap.answers.fit import ArenaFit, CachedPiece, Fit, FittingChunk, ShortPiece
from gdbheap.answers.holes import Hole, Holes, Neighbour
from gdbheap.answers.info import Info
from gdbheap.answers.instances import Instance, Instances
from gdbheap.answers.pins import Pin as HeapPin
from gdbheap.answers.pins import Pins, PinSums
from gdbheap.answers.pools import ArenaUse, ClassShare, Fill, InterpreterPools, PinningBlocks, PoolClass, Pools
from gdbheap.answers.pyobjects import Count, PyObjects, RootBlocks, Tally, TypeRow, UnknownBlock
from gdbheap.answers.sizes import SizeRow, Sizes, SizeTotal
from gdbheap.answers.stats import compare
from gdbheap.commands import arenas as arenas_command
from gdbheap.commands import chunks as chunks_command
from gdbheap.commands import holes as holes_command
from gdbheap.commands import pyobjects as pyobjects_command
from gdbheap.commands.surface.help import help_text
from gdbheap.commands.surface.options import Common, options_of
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.commands.surface.session import Result, TargetInfo, present
from gdbheap.errors import UsageError
from gdbheap.findings.after_fork.rule import AfterFork
from gdbheap.findings.finding import Finding
from gdbheap.first_page.ledger import Ledger, Line, Rss
from gdbheap.first_page.summary import NotWalked, Summary
from gdbheap.layout.facts import Fact
from gdbheap.report.formats.json import document, text_of
from gdbheap.report.text import numbers
from gdbheap.report.text.style import COLOURS, PLAIN, Style, encodable, style_for
from gdbheap.report.text.tables import SHARE, Column, table
from gdbheap.report.words import (
    arenas,
    at,
    buffers,
    check,
    chunks,
    holes,
    info,
    instances,
    ledger,
    pins,
    pools,
    pyobjects,
    sizes,
    stats,
    summary,
)
from gdbheap.targets.target import Damage

EXACT = Style(exact=True, rss=1 << 30)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        ((1 << 20) - 1, "1.0 MiB"),
        (1 << 20, "1.0 MiB"),
        (5 << 30, "5.0 GiB"),
        (3 << 40, "3.0 TiB"),
        (-2048, "-2.0 KiB"),
        (None, "?"),
    ],
)
def test_sizes_for_people(size: int | None, text: str) -> None:
    """Check one decimal, powers of 1024, and that there is no 1024.0 of any unit."""
    assert numbers.size_text(size) == text


def test_rounded_sizes_are_close(rng: random.Random) -> None:
    """Check that the rounded size is within half of the last digit, and that the number stays below 1024."""
    units = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "PiB": 1 << 50, "EiB": 1 << 60}
    for _ in range(2000):
        size = rng.randrange(1 << rng.randrange(1, 63))
        number, unit = numbers.size_text(size).split()
        assert abs(float(number) * units[unit] - size) <= units[unit] * 0.0501
        assert float(number) < 1024
        assert numbers.size_text(size, exact=True) == f"{size:,}"


def test_parsed_sizes(rng: random.Random) -> None:
    """Check K M G T in powers of 1024, in either case, with or without iB; a part of a unit; bytes."""
    for _ in range(300):
        number, (letter, shift) = rng.randrange(1000), rng.choice([("", 0), ("K", 10), ("m", 20), ("G", 30), ("t", 40)])
        ending = rng.choice(["", "B", "iB"]) if letter else ""
        assert numbers.parse_size(f"{number}{letter}{ending}") == number << shift
    assert numbers.parse_size("1.5M") == 3 << 19


@pytest.mark.parametrize("text", ["", "M", "1X", "-1", "1.5", "0x10", "1 2", "99999999999999T", "١", "1e3", "nan"])
def test_no_sizes(text: str) -> None:
    """Check that any other text is an error, also a number beyond 64 bits."""
    with pytest.raises(ValueError, match="size|64 bits"):
        numbers.parse_size(text)


@pytest.mark.parametrize(("text", "address"), [("0x10", 16), ("0XfF", 255), ("4096", 4096), ("0", 0)])
def test_addresses(text: str, address: int) -> None:
    """Check that hexadecimal and decimal addresses are accepted."""
    assert numbers.parse_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "0x", "12ab", "-1", "0x10000000000000000", "1.0", "1_0", "١"])
def test_no_addresses(text: str) -> None:
    """Check that any other text is an error."""
    with pytest.raises(ValueError, match="address|64 bits"):
        numbers.parse_address(text)


def test_table_is_aligned_and_cut() -> None:
    """Check that columns are aligned, numbers on the right, and that texts are shortened to a terminal's width but
    not for a pipe."""
    columns = [Column("size"), SHARE, Column("type", True)]
    rows = [["1.0 MiB", "12.0", "a" * 100], ["3 B", "0.1", "  b\x1b[31m\n"]]
    whole = table(columns, rows, Style(rss=100), ["4 B", "12.1", "total"]).splitlines()
    assert whole[1] == whole[4] and set(whole[1]) == {"-", " "}
    assert whole[2].index("1.0 MiB") + 7 == whole[3].index("3 B") + 3
    assert "a" * 100 in whole[2] and "\x1b" not in "".join(whole)
    assert whole[3].index("b") == whole[2].index("a") + 2
    cut = table(columns, rows, Style(rss=100, width=30), ["4 B", "12.1", "total"]).splitlines()
    assert all(len(line) <= 30 for line in cut) and "aaa…aaa" in cut[2]
    assert "%RSS" not in table(columns, rows, Style())
    assert table(columns, [], Style()).splitlines()[0].split() == ["size", "type"]


def test_tables_as_tabulate_lays_them_out(rng: random.Random) -> None:
    """Check random cells in columns of either alignment against tabulate: the same lines, except for the second
    rule."""
    from tabulate import tabulate

    for _ in range(200):
        columns = [Column("t" * rng.randrange(1, 9), rng.random() < 0.5) for _ in range(rng.randrange(1, 6))]
        words = ["", "x", "3 B", "1.0 MiB", "a longer text", "ä→"]
        rows = [[rng.choice(words) for _ in columns] for _ in range(rng.randrange(1, 6))]
        titles, sides = [one.title for one in columns], ["left" if one.left else "right" for one in columns]
        theirs = tabulate(rows, titles, tablefmt="simple", disable_numparse=True, colalign=sides)
        assert table(columns, rows, Style()).splitlines() == [line.rstrip() for line in theirs.splitlines()]


def test_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that bold is used only on a terminal that supports it, and never with NO_COLOR."""
    import os
    import pty

    leader, follower = pty.openpty()
    with os.fdopen(leader, "rb"), os.fdopen(follower, "w") as terminal:
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.delenv("NO_COLOR", raising=False)
        assert style_for(terminal, False, None).bold
        monkeypatch.setenv("NO_COLOR", "1")
        assert not style_for(terminal, False, None).bold
    plain = style_for(None, True, 5)
    assert (plain.exact, plain.rss, plain.width, plain.bold, plain.private) == (True, 5, None, False, False)


ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def coloured(rng: random.Random, style: Style) -> list[str]:
    """Return reports with colours: a ledger with findings large, small and doubtful, checks, damage, a table."""
    answer = made_ledger(rng, True)
    lines = [dataclasses.replace(line, state=state) for line, state in zip(answer.ledger, (None, None, "used", "free"))]
    figures = AfterFork(3, 1)
    findings = [Finding("after-fork", size, figures, doubtful=size == 3) for size in (style.rss or 0, 2, 3)]
    places = [Damage(0x1000 + place, "what", "expected", "found") for place in range(7)]
    info = TargetInfo([], ["a warning"], places, True, style.rss)
    arenas = Arenas([], Mmapped(0, 0), Total(0, 0))
    told = Result(arenas_command.COMMAND, arenas_command.Options(), info, arenas, arenas)
    rows = [[name, "1", "x" * 90] for name in ("", "a name", "  within", "b" * 70)]
    return [
        # With lines below a hundredth of RSS: all have colours.
        ledger.render(dataclasses.replace(answer, ledger=lines, findings=findings), style, whole=True),
        check.render(Check(True, 1, 2, 3, 0), style, [], 0),
        check.render(Check(False, 1, 2, 3, 4096), style, places, 7),
        present(told, style),
        table(
            [Column("what", True), Column("n"), Column("x", True)], rows, style, None, ["used", "free", "top", "used"]
        ),
    ]


@pytest.mark.parametrize("width", [24, 60, None])
def test_colours_are_all_that_a_terminal_adds(width: int | None, rng: random.Random) -> None:
    """Check that a coloured report without its escapes is the plain one, also where lines are cut.

    Each style is turned off on its line, and a colour is neither a background nor pale on white.
    """
    seed = rng.getrandbits(32)
    plain, bright = (
        coloured(random.Random(seed), Style(width=width, bold=bold, rss=1 << 28)) for bold in (False, True)
    )
    assert [ESCAPE.sub("", text) for text in bright] == plain
    assert all("\x1b" not in text for text in plain) and all("\x1b" in text for text in bright)
    for line in "\n".join(bright).splitlines():
        on_and_off = ESCAPE.findall(line)
        assert on_and_off[1::2] == [PLAIN] * (len(on_and_off) // 2) and len(on_and_off) % 2 == 0, line
        assert set(on_and_off[::2]) <= {"\x1b[1m", *COLOURS.values()}
    assert not re.search(r"3[0347]m|4[0-9]m", "".join(COLOURS.values()))


def test_what_has_a_colour(rng: random.Random) -> None:
    """Check the colours of used and free memory, of a finding of a tenth of RSS or more, and of damage."""
    text, sound, damaged, notes, _table = coloured(rng, Style(bold=True, rss=1 << 28))
    assert f"\n  {COLOURS['used']}glibc.used{PLAIN} " in text and f"\n  {COLOURS['free']}glibc.free{PLAIN} " in text
    assert f"\n{COLOURS['severe']}1. 256.0 MiB (100.0 % of RSS){PLAIN}: " in text
    assert f"\n\x1b[1m2. 2 B (0.0 % of RSS){PLAIN}: " in text and "\n3. 3 B (0.0 % of RSS): " in text
    assert f"{COLOURS['sound']}Nothing is damaged.{PLAIN} " in sound
    assert f"{COLOURS['fault']}7 places are damaged.{PLAIN}" in damaged
    assert notes.count(f"{COLOURS['fault']}Damage") == 6


def test_sentences_fit_the_terminal() -> None:
    """Check that no line is wider than the terminal, that no word is lost, and that a pipe gets each sentence on one
    line."""
    answer = Holes(
        [Hole(1, 2 << 20, 5, 0, "glibc", None, None)], 1, 2 << 20, 5, reasons=["Long words are said here of why. " * 5]
    )
    narrow, whole = (holes.render(answer, Style(width=width), 1) for width in (50, None))
    assert max(map(len, narrow.splitlines())) <= 50
    assert narrow.partition("\n\n")[0].split() == whole.partition("\n\n")[0].split()
    assert len(whole.splitlines()[0]) > 100


def test_encodable() -> None:
    """Check that a name that the terminal cannot encode does not end the report."""
    assert encodable("é\udc80x", "ascii") == "\\xe9\\udc80x"
    assert encodable("é", "utf-8") == "é"
    assert encodable("é", "no-such-charset") == "\\xe9"


def column(text: str, title: str) -> list[str]:
    """Return the cells of a right-aligned column, from the first row to the total."""
    lines = text.splitlines()
    rules = [number for number, line in enumerate(lines) if re.fullmatch(r"[- ]+", line) and "-" in line]
    spans = [match.span() for match in re.finditer("-+", lines[rules[0]])]
    start, end = next(span for span in spans if lines[rules[0] - 1][slice(*span)].strip() == title)
    body = lines[rules[0] + 1 : rules[-1]] + [lines[rules[-1] + 1]]
    return [line[start:end].strip() for line in body]


def adds_up(text: str, title: str) -> None:
    """Check that the last cell is the sum of the others ("-": nothing)."""
    *rows, total = [int(cell.replace(",", "")) if cell not in ("-", "") else 0 for cell in column(text, title)]
    assert sum(rows) == total, title


def made_arenas(rng: random.Random) -> Arenas:
    """Return arenas whose total adds up."""
    rows = [Arena(index, rng.randrange(1 << 47), *(rng.randrange(1 << 30) for _ in range(8))) for index in range(9)]
    mapped = Mmapped(3, rng.randrange(1 << 30))
    total = Total(sum(row.system for row in rows) + mapped.bytes, sum(row.in_use for row in rows) + mapped.bytes)
    return Arenas(rows, mapped, total)


@pytest.mark.parametrize("shown", [9, 4, 0])
def test_arenas_add_up(shown: int, rng: random.Random) -> None:
    """Check that the rows and the rest add up to the total, also if the list is cut."""
    whole = made_arenas(rng)
    text = arenas.render(dataclasses.replace(whole, arenas=whole.arenas[:shown]), EXACT, 9 - shown)
    adds_up(text, "system")
    adds_up(text, "in use")
    assert ("5 more" in text) == (shown == 4)


def test_arenas_in_detail(rng: random.Random) -> None:
    """Check heaps, lists and threads' caches below the table, which are only there with --detail."""
    whole = made_arenas(rng)
    rows = [
        dataclasses.replace(row, heaps=[ArenaHeap(0x5000, 0x9000, 0x4000, 0x30)], bins=[Bins("fast", 2, 64)])
        for row in whole.arenas
    ]
    threads = [ThreadCache(7, "worker", 0x5010, 0, 3, 96), ThreadCache(8, "", 0x6010, None, 4, 128)]
    answer = dataclasses.replace(whole, arenas=rows, threads=threads)
    brief, detail = arenas.render(answer, EXACT), arenas.render(answer, EXACT, detail=True)
    assert detail.startswith(brief) and not {"0x5000", "worker"} & set(brief.split())
    heaps, lists, caches = detail.split("\n\n")[-3:]
    assert heaps.count("0x5000") == lists.count("fast") == len(rows)
    assert column(caches, "chunks") == ["3", "4", "7"] and column(caches, "bytes") == ["96", "128", "224"]
    assert "main" in caches and "worker" in caches


@pytest.mark.parametrize("shown", [40, 6])
def test_sizes_add_up(shown: int, rng: random.Random) -> None:
    """Check that ranges, and exact sizes with the rest, have the same total, and that every range contains its
    sizes."""
    rows = []
    for size in sorted(rng.sample(range(32, 1 << 20, 16), 40)):
        used, free = rng.randrange(99), rng.randrange(99)
        rows.append(SizeRow(size, used, free, size * used, size * free))
    total = SizeTotal(*(sum(getattr(row, key) for row in rows) for key in ("used_count", "free_count", "used", "free")))
    whole = Sizes(rows, total, 3, 1000, 500)
    assert whole.ranges[0].start <= rows[0].size and rows[-1].size < whole.ranges[-1].end
    for found in whole.ranges:
        inside = [row for row in rows if found.start <= row.size < found.end]
        assert found.total.used_count == sum(row.used_count for row in inside)
    assert all(one.end == two.start for one, two in zip(whole.ranges, whole.ranges[1:]))
    text = sizes.render(dataclasses.replace(whole, sizes=rows[:shown]), whole, EXACT)
    for part in text.split("\n\n")[1:3]:
        for title in ("used chunks", "used bytes", "free chunks", "free bytes"):
            adds_up(part, title)
    assert ("34 more" in text) == (shown == 6) and "3 of them have a mapping of their own" in text


def test_no_sizes_at_all() -> None:
    """Check the answer if malloc was never called."""
    whole = Sizes([], SizeTotal(0, 0, 0, 0), 0, 0, 0)
    assert whole.ranges == [] and "0 chunks are in use" in sizes.render(whole, whole, Style())


@pytest.mark.parametrize("shown", [9, 2, 0])
def test_chunks_add_up(shown: int, rng: random.Random) -> None:
    """Check that the rows and the rest add up to the total."""
    rows = [Chunk(16 * i, rng.randrange(32, 1 << 30, 16), "used", None, i % 2 or None, "list") for i in range(1, 10)]
    text = chunks.render(Chunks(rows[:shown], 9, sum(row.size for row in rows)), EXACT)
    adds_up(text, "size")
    assert "9 chunks match" in text and (f"{9 - shown} more" in text) == (shown < 9)
    assert chunks.render(Chunks([], 0, 0), Style()).startswith("No chunk matches")


def made_fit(**changes: Any) -> Fit:
    """Return an answer for malloc(1000) in two arenas, neither of which has enough."""
    rows = [ArenaFit(0, None, False, 48, False, 4096), ArenaFit(1, None, False, None, True, None)]
    return dataclasses.replace(Fit(1000, 1008, False, False, 1 << 17, rows, [], []), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {},
            [
                "the heap would grow",
                "makes the heap grow by 4,096 bytes; the largest free chunk is 48 bytes too small",
                "maps new",
            ],
        ),
        ({"mmapped": True}, ["map new memory for this request (mmap_threshold is 131,072 bytes)"]),
        ({"fits": True, "cached_pieces": [CachedPiece(7, 64)]}, ["in the cache of thread 7."]),
        (
            {"fits": True, "by_arena": [ArenaFit(0, FittingChunk(0x50, 1008), False, None, False, None)]},
            ["0x50", "takes this"],
        ),
        (
            {"fits": True, "by_arena": [ArenaFit(0, None, True, 16, False, None)]},
            ["takes the chunk from the top chunk; the"],
        ),
        (
            {"nearest": [ShortPiece(0x70, 960, 1, 48)]},
            ["In these arenas, the largest free chunk is too small:", "0x70", "960", "48 bytes"],
        ),
    ],
)
def test_fit(changes: dict[str, Any], words: list[str]) -> None:
    """Check that the verdict comes first, then each arena's part and the nearest misses."""
    text = holes.render(Holes([], 0, 0, 0, 1 << 20, made_fit(**changes)), EXACT, 1 << 20)
    assert text.startswith("malloc(1,000) needs a chunk of 1,008 bytes: ")
    assert all(word in text for word in words), text
    assert "There is no hole of" in text


@pytest.mark.parametrize("shown", [12, 5])
def test_holes_add_up(shown: int, rng: random.Random) -> None:
    """Check that holes and their rest add up to the total, and that the thing after most holes is named without its
    address."""
    pin = Neighbour(4096, 64, "items of list at 0x1234", block_kind=BlockKind("items", "list"))
    found = [Hole(i, rng.randrange(1 << 20, 1 << 28), rng.randrange(1 << 20), 0, "glibc", None, pin) for i in range(12)]
    total = sum(hole.size for hole in found), sum(hole.resident or 0 for hole in found)
    text = holes.render(Holes(found[:shown], 12, *total, reasons=["They stay."]), EXACT, 1 << 20)
    adds_up(text, "size")
    adds_up(text, "resident")
    which = "each hole" if shown == 12 else f"each of the {shown} largest holes"
    assert f"After {which} lies items of list of 64 bytes. They stay." in text.splitlines()[0]
    assert "glibc" not in text.split("In every row: ")[0] and text.endswith(
        "In every row: allocator glibc, arena main."
    )
    assert f"hold {total[0]:,} bytes, " in text


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_why_holes_stay(kind: type[Allocator]) -> None:
    """Check that there is a reason for each allocator."""
    hole = Hole(1, 2 << 20, 0, None, kind.name, None, None)
    text = holes.render(Holes([hole], 1, 2 << 20, 0, reasons=[kind.why_holes_stay]), Style(rss=1 << 30), 1)
    assert re.search(r"resident \(0.0 % of RSS\)\. \S.* returns? .*", text), text


def test_holes_of_unknown_residency() -> None:
    """Check that an unknown value is a question mark and a sentence, not a zero."""
    text = holes.render(Holes([Hole(1, 2 << 20, None, None, "pymalloc", None, None)], 1, 2 << 20, None), Style(), 1)
    assert column(text, "resident") == ["?", "?"] and "unknown part" in text and "malloc_trim" not in text


def test_no_holes() -> None:
    """Check that there is a sentence and no empty table, and that it says which option lists the largest hole."""
    text = holes.render(Holes([], 0, 0, 0, largest_hole=70_000), Style(), 1 << 20)
    assert text == "There is no hole of 1.0 MiB or more. The largest hole has 68.4 KiB: add '--min=70000'."
    assert holes.render(Holes([], 0, 0, 0), Style(), 1 << 20) == "There is no hole of 1.0 MiB or more."


UNITS = ("group is", "groups are"), "would be freed"


def made_pins(rng: random.Random) -> Pins:
    """Return pins of both allocators, and their sums."""
    allocators = ["glibc", "pymalloc"]
    found = [
        HeapPin(16 * n, rng.randrange(1, 999), "str", rng.choice(allocators), rng.randrange(4096, 99999), n, [])
        for n in range(1, 21)
    ]
    sums = []
    for name in allocators:
        rows = [pin for pin in found if pin.allocator == name]
        blocks, size = sum(pin.blocks for pin in rows), sum(pin.size for pin in rows)
        sums.append(PinSums(name, len(rows), blocks, size, sum(pin.would_free for pin in rows), blocks, *UNITS))
    return Pins(found, sums, [], 4096, True)


@pytest.mark.parametrize("shown", [20, 3])
def test_pins_add_up(shown: int, rng: random.Random) -> None:
    """Check that freed bytes, blocks and their bytes add up, with the rest, and that there is a sentence for each
    allocator."""
    whole = made_pins(rng)
    text = pins.render(dataclasses.replace(whole, rows=whole.rows[:shown]), EXACT)
    for title in ("would free", "blocks", "size"):
        adds_up(text, title)
    for row in whole.sums:
        assert not row.groups or f"{row.allocator}: " in text and f"{row.would_free:,} bytes" in text


def test_no_pins() -> None:
    """Check that there is a sentence and no empty table."""
    empty = Pins([], [PinSums("glibc", 0, 0, 0, 0, 0, *UNITS)], [], 4096, True)
    assert pins.render(empty, Style()).startswith("No pinned pages: no group of a few blocks keeps 4.0 KiB or more")


@pytest.mark.parametrize("shown", [20, 3])
def test_pools_add_up(shown: int, rng: random.Random) -> None:
    """Check pools and bytes, with the free pools and the rest."""
    classes = [PoolClass(16 * i, rng.randrange(1, 99), rng.randrange(999), rng.randrange(99)) for i in range(1, 21)]
    whole = Pools(1 << 20, 1 << 14, 7, rng.randrange(1, 60), classes, interpreters=[InterpreterPools(4096, 7, 9, 99)])
    text = pools.render(dataclasses.replace(whole, rows=classes[:shown]), whole, EXACT)
    for title in ("pools", "blocks used", "blocks free", "used bytes", "free bytes", "held"):
        adds_up(text, title)


def test_details_of_pools() -> None:
    """Check that an unknown value is a question mark, that nearly empty arenas are a sentence, and their contents a
    table."""
    classes = [PoolClass(16, 3, 9, 5, 2, 1, 4, 6, 90, 6), PoolClass(32, 1, 1, 2, 1)]
    pin = PinningBlocks("str", 4, 64, 0x1030, "'a  b'")
    use = ArenaUse(0, 0x1000, 4, 64, [ClassShare(16, 1, 4)], [pin])
    fill, own = [Fill(1, 2, 176), Fill(100, 0, 0)], [InterpreterPools(4096, 2, 10, 176)]
    whole = Pools(1 << 20, 1 << 14, 2, 3, classes, fill, [use], own)
    plain, text = pools.render(whole, whole, EXACT), pools.render(whole, whole, EXACT, detail=True)
    assert text.startswith(plain) and "2 arenas are at most 25 % full and kept by 176 bytes" in " ".join(plain.split())
    lines = [line.split() for line in text[len(plain) :].splitlines()]
    assert ["16", "6", "90", "96", "6", "6.2", "2", "1", "4"] in lines
    assert ["32", "?", "?", "?", "?", "?", "1", "0", "-"] in lines
    assert ["1", "%", "2", "176", f"{(2 << 20) - 176:,}"] in lines
    assert ["0x1000", "64", "0.0", "4", "4", "x", "16", "B"] in lines
    assert any(line[:4] == ["0x1000", "4", "64", "0x1030"] for line in lines)


@pytest.mark.parametrize("shown", [30, 4, 0])
def test_instances_add_up(shown: int, rng: random.Random) -> None:
    """Check sizes and buffers, with the rest; a text or a dash."""
    rows = [Instance(4096 + i, "m.T", rng.randrange(1, 999), rng.randrange(999), None) for i in range(30)]
    rows[0].text = "T(1)"
    sums = [sum(getattr(row, key) for row in rows) for key in ("size", "buffers")]
    text = instances.render(Instances(rows[:shown], 30, *sums), EXACT)
    for title in ("size", "buffers"):
        adds_up(text, title)
    assert ("T(1)" in text) == bool(shown) and "30 objects hold" in text


@pytest.mark.parametrize("shown", [30, 7, 0])
def test_buffers_add_up(shown: int, rng: random.Random) -> None:
    """Check counts and sizes, with the rest; reached bytes are mentioned if there are any."""
    rows = [Buffer("m.T", f"role {i}", rng.randrange(1, 999), rng.randrange(1 << 30), i == 3) for i in range(30)]
    count, size = (sum(getattr(row, key) for row in rows) for key in ("count", "bytes"))
    for reached in (0, rows[3].bytes):
        text = buffers.render(Buffers(rows[:shown], 30, count, size, reached), EXACT)
        for title in ("count", "size"):
            adds_up(text, title)
        assert ("has the role structure" in text) == bool(reached)
        assert (f"({30 - shown:,} more kinds)" in text) == (shown < 30)
    assert buffers.render(Buffers([], 0, 0, 0, 0), Style()).startswith("No object of a matching type")


def test_no_instances() -> None:
    """Check that there is a sentence and no empty table."""
    assert instances.render(Instances([], 0, 0, 0), Style()).startswith("No object has a type")
    none = Tally(0, 0)
    empty = PyObjects([], Count(0, 0, 0, 0, 0), Tally(9, 900), none, none, [], Tally(5, 500), none, [])
    assert pyobjects.render(empty, Style(), 0, some=True).startswith("No type's name matches")


def test_text_of_an_object_keeps_its_blanks() -> None:
    """Check that two blanks in a str stay, and that a character that would move a terminal's cursor is a question
    mark."""
    mapping = AtMapping(4096, 8192, "rw-p", "", "other")
    answer = At(mapping, None, Object(4112, "str", 64, "'a  b\x1b'"), None)
    assert "str: 'a  b?'" in at.render(answer, Style(), 4112)


@pytest.mark.parametrize("shown", [30, 7])
def test_pyobjects_add_up(shown: int, rng: random.Random) -> None:
    """Check objects, buffers and both together, and the text about objects outside the table."""
    sizes = [[rng.randrange(1, 1 << 30) for _ in range(4)] for _ in range(30)]
    rows = [TypeRow(f"m.T{i}", *row[:3], row[1] + row[2], row[3]) for i, row in enumerate(sizes)]
    keys = ("count", "own", "buffers", "bytes", "reached")
    total = Count(*(sum(getattr(row, key) for row in rows) for key in keys))
    roots = [RootBlocks("libx.so", 3, 300)]
    beside = (Tally(5, 500), Tally(2, 200), roots, Tally(0, 0), Tally(7, 700))
    unknown = [UnknownBlock(64, 300, "text"), UnknownBlock(16, 100, "C++ object of class a::B")]
    answer = PyObjects(rows[:shown], total, Tally(99, 9900), *beside, unknown)
    text = pyobjects.render(answer, EXACT, 30 - shown)
    table, below = text.split("unknown block", 1)
    for title in ("count", "own", "buffers", "total"):
        adds_up(table, title)
    adds_up("unknown block" + below, "size")
    assert "5 more" in below and "C++ object of class a::B" in below
    assert "500 bytes in 5 objects" in text and "700 bytes in 7" in text


def made_ledger(rng: random.Random, known: bool) -> Ledger:
    """Return a ledger of two roots, one of them with children."""
    sizes = [rng.randrange(1 << 30) for _ in range(4)]

    def line(name: str, parent: str | None, size: int) -> Line:
        return Line(name, parent, name, 2 * size, size if known else None, 0 if known else None)

    children = [line("glibc.used", "glibc", sizes[1]), line("glibc.free", "glibc", sizes[2])]
    lines = [line("file", None, sizes[0]), line("glibc", None, sizes[1] + sizes[2]), *children]
    rss = Rss(sizes[0] + sizes[1] + sizes[2] if known else None, 0 if known else None, "smaps_rollup")
    return Ledger(rss, lines, [Finding("after-fork", sizes[2], AfterFork(sizes[0], sizes[1]))])


def test_ledger_is_a_tree_that_adds_up(rng: random.Random) -> None:
    """Check that children are indented below their parent, and that the roots add up to the total, which is RSS."""
    answer = made_ledger(rng, True)
    text = ledger.render(answer, Style(exact=True, rss=answer.rss.bytes), whole=True)
    cells = [int(cell.replace(",", "")) for cell in column(text, "resident")]
    by_name = {line.id: line.resident for line in answer.ledger}
    assert cells == [by_name[n] for n in ("file", "glibc", "glibc.used", "glibc.free")] + [answer.rss.bytes]
    assert "\n  glibc.used" in text and "1. " in text and "Use PSS, not RSS, to add up several processes." in text
    assert column(text, "%RSS")[-1] == "100.0"


def test_ledger_of_a_core_does_not_say_rss(rng: random.Random) -> None:
    """Check that neither the sentence nor the column says RSS for a core, which has only private memory."""
    text = ledger.render(made_ledger(rng, True), Style(exact=True, rss=1 << 20, private=True), whole=True)
    assert "%RSS" not in text and "of RSS" not in text and "a core does not contain RSS itself" in text
    assert len(column(text, "%private")) == 5 and "% of private memory" in text


def made_summary(**changes: Any) -> Summary:
    """Return a summary of glibc's malloc alone, half of which is free."""
    kept = [
        KeepReason("x.shared", 300, "on shared pages"),
        KeepReason("x.cached", 100, "in caches"),
        KeepReason("x.top", 1, "at the top"),
    ]
    return dataclasses.replace(Summary(1000, 1000, 1000, 800, 399, kept, ["glibc"], None, 500), **changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "1,000 bytes is in use by the program, and 800 bytes is free and resident. 500 bytes of the free "
             "memory is in completely free pages. malloc_trim(0) would return 399 bytes. 401 bytes of the "
             "free memory stays: 300 bytes on shared pages, 100 bytes in caches."),
        ({"used_resident": 900}, "1,000 bytes is in use by the program (900 bytes of it resident), and"),
        ({"returnable": 0, "kept": [KeepReason("x.top", 800, "at the top")]},
             "return nothing. The free memory stays at the top."),
        ({"whole": 0, "returnable": 0}, "None of the free memory is in completely free pages. malloc"),
        ({"returnable": None, "kept": [KeepReason("new.free", 800, "in new blocks")]},
             "pages. The free memory stays in new blocks."),
        ({"used_resident": None, "free_resident": None, "returnable": None, "kept": []}, "is free; how much"),
        ({"free": 0, "free_resident": 0, "kept": []}, "1,000 bytes is in use by the program, and 0 bytes is free"),
        ({"unknown": NotWalked("other.x", "x", 7)}, "In glibc malloc, 1,000 bytes is in use, and 800 bytes is free"),
        ({"unknown": NotWalked("other.x", "x", 7)}, "gdbheap cannot list the blocks of x. "
             "It is unknown how much of 7 bytes of its own and other anonymous memory is free."),
        ({"unknown": NotWalked("other.x", "x", 7, own=True)},
             "of x. It is unknown how much of 7 bytes of its own memory is free."),
        ({"unknown": NotWalked("other.x", "x", None)},
             "of x. It is unknown how much of its own and other anonymous memory is free."),
        ({"unknown": NotWalked("other.rest", "", 7)},
             "It is unknown how much of 7 bytes of other anonymous memory is free."),
        ({"unknown": NotWalked("other.rest", "a or b", 0)}, "In glibc malloc, 1,000 bytes is in use, and"),
        ({"kept": [KeepReason("x.huge", 401, "in huge pages")]}, "stays in huge pages."),
    ],
)  # fmt: skip
def test_summary(changes: dict[str, Any], words: str) -> None:
    """Check used and free bytes, the bytes that can be given back, the reason why the rest stays, and for an
    allocator that is not walked that nothing is known."""
    names = {"glibc": "glibc malloc", "new": "a new one"}
    assert words in summary.render(made_summary(**changes), names, Style(exact=True, rss=2000))
    # Less than a hundredth of RSS is not examined.
    assert "malloc_trim" not in summary.render(made_summary(**changes), names, Style(exact=True, rss=100_000))


def test_no_summary() -> None:
    """Check that there is no summary without blocks, and one sentence with blocks that are not walked."""
    nothing = Summary(0, 0, 0, 0, None, [], [], None)
    assert summary.render(nothing, {}, EXACT) == ""
    told = summary.render(dataclasses.replace(nothing, unknown=NotWalked("other.x", "x", 7)), {}, EXACT)
    assert told.startswith("gdbheap cannot list the blocks of x") and "in use" not in told


def test_ledger_of_unknown_residency(rng: random.Random) -> None:
    """Check that unknown residency is shown as question marks without a share, and that a sentence explains them."""
    text = ledger.render(made_ledger(rng, False), Style())
    assert set(column(text, "resident")) == {"?"} and "%RSS" not in text and "resident memory is unknown." in text


USED = Block(0x1000, 64, "used", "glibc", 0, None, 0x1030)


@pytest.mark.parametrize(
    ("block", "found", "owner", "words"),
    [
        (None, None, None, "0x1010 is in stack of thread 7."),
        (Block(0x1000, 64, "tcache", "glibc", 0, "tcache of 64", 0x1030), None, None, "free (tcache of 64)"),
        (USED, Object(0x1000, "m.T", 64, "<T>"), None, "object of type m.T"),
        (USED, None, Owner(9, "list", "items"), "an object of type list owns"),
        (USED, None, Owner(None, None, "unknown (text)"), "unknown (text)"),
    ],
)
def test_at(block: Block | None, found: Object | None, owner: Owner | None, words: str) -> None:
    """Check that the first sentence says the most that is known."""
    mapping = AtMapping(0x1000, 0x3000, "rw-p", "[stack]", "stack of thread 7")
    text = at.render(At(mapping, block, found, owner), Style(), 0x1010)
    assert words in text.splitlines()[0] and "0x1000-0x3000 rw-p" in text
    assert (", the address is 16 bytes into it" in text) == (block is not None)


def test_check_and_info() -> None:
    """Check that the verdict agrees with the damage, and that there is an info row for each fact."""
    sound = check.render(Check(True, 1, 2, 3, 0), Style(), [], 0)
    assert sound == "Nothing is damaged. 1 region, 2 chunks and 3 pools were walked."
    assert check.render(Check(False, 1, 1, 0, 0), Style(), [], 0).endswith("read. 1 region and 1 chunk were walked.")
    places = [Damage(16, "size", "32", "0")]
    damaged = check.render(Check(False, 1, 2, 3, 4096), Style(), places, 2)
    assert damaged.startswith("2 places are damaged. ") and "0x10" in damaged
    facts = [Fact("target", "process 7", "/proc/7", None), Fact("program", "a b", "c", None)]
    told = [Fact("allocator", "glibc 2.36", "its text", "d"), Fact("python", "3.11.2", "c", "d")]
    told += [Fact("residency", "unknown", "c", None), Fact("object /x", "unknown", "c", None)]
    first = info.render(Info([*facts, *told]), Style()).splitlines()[0]
    assert first == (
        'Process 7 runs "a b" with Python 3.11.2 and the allocator glibc 2.36. Unknown: residency and 1 loaded object. '
        "2 of 6 facts are confirmed by a second source or by the target's own bytes."
    )
    nothing = [*facts, Fact("allocator", "unknown", "c", None), Fact("Python", "none", "c", None)]
    first = info.render(Info(nothing), Style()).splitlines()[0]
    assert first.startswith('Process 7 runs "a b". Unknown: allocator. 0 of 4 facts are ')


def test_stats_side_by_side(rng: random.Random) -> None:
    """Check that 32-bit figures are compared as such, and that a figure that differs is shown with its difference."""
    ours = made_arenas(rng)
    huge = dataclasses.replace(ours, total=Total((5 << 32) + 7, 9))

    def said(index: str, system: int, in_use: int) -> str:
        return f"{index}\nsystem bytes     = {system % (1 << 32):10}\nin use bytes     = {in_use % (1 << 32):10}\n"

    text = "".join(said(f"Arena {row.index}:", row.system, row.in_use) for row in huge.arenas)
    agreeing = stats.render(compare(huge, text + said("Total (incl. mmap):", (5 << 32) + 7, 9)), Style())
    assert agreeing.startswith("All 20 figures agree with malloc_stats().\n") and "system bytes     =" in agreeing
    differing = stats.render(compare(huge, text + said("Total (incl. mmap):", 17, 9)), Style())
    assert differing.startswith("1 of 20 figures differs from malloc_stats(), which ") and "-10" in differing


def test_document() -> None:
    """Check that the envelope comes first, then the answer's keys, and that a key that would hide one of the
    envelope is refused."""
    content = document("heap check", [{"kind": "core"}], ["w"], [Damage(1, "a", "b", "c")], Check(True, 1, 2, 3, 0))
    envelope = ["command", "schema", "target", "warnings", "damage"]
    keys = ["ok", "regions", "chunks", "pools", "unexplained", "page_count", "slabs", "spans", "abort"]
    assert list(content) == [*envelope, *keys]
    damage = {"address": 1, "what": "a", "expected": "b", "found": "c", "transient": False, "is_absent": False}
    assert json.loads(text_of(content))["damage"] == [damage]
    with pytest.raises(TypeError, match="object"):
        text_of({"wrong": object()})

    @dataclasses.dataclass
    class Wrong:
        damage: int

    with pytest.raises(ValueError, match="damage"):
        document("heap wrong", [], [], [], Wrong(1))


def test_present(rng: random.Random) -> None:
    """Check that JSON is one line, and that a table is followed by the warnings and the first places of damage."""
    damage = [Damage(i, "size", "1", "2") for i in range(8)]
    about = TargetInfo([{"kind": "core"}], ["a\nwarning"], damage, True, None)
    answer = made_arenas(rng)
    told = Result(COMMANDS["arenas"], arenas_command.Options(), about, answer, answer)
    text = present(told, Style())
    assert "\nWarning: a warning\n" in text and text.count("Damage at") == 5 and "3 more places" in text
    line = present(dataclasses.replace(told, options=arenas_command.Options(json=True, sort="index")), Style())
    assert "\n" not in line and json.loads(line)["total"]["free"] == sum(arena.free for arena in answer.arenas)


@pytest.mark.parametrize("noun", COMMANDS)
def test_declarations(noun: str, rng: random.Random) -> None:
    """Check that each option is in the help, is parsed with "=" and with a blank, and mixes with other arguments in
    any order."""
    command = COMMANDS[noun]
    text = help_text(command)
    assert text.splitlines()[0] == f"{command.summary}." and "\nExample: " in text
    values: dict[str, Any] = {
        "--top": "3", "--sort": next(iter(command.sorts), "any"), "--min": "2M", "--max": "3M", "--fit": "5M",
        "--state": "used,free", "--arena": "1", "--type": "m.*", "--pad": "64K", "--svg": "a.svg", "--cell": "64K",
        "--allocator": "glibc", "--by": "type", "--max-stop": "2.5", "--since": "a.heap", "--limit": "4G",
        "-o": "a.csv", "--every": "10ms" if noun != "replay" else "50", "--duration": "2h", "--snapshot-every": "1d",
        "--name": "^a.*b", "--filter": "a.*",
        "--cgroup": "a/b", "--count": "3",
        "--rss": "1G", "--grows": "100M/10m", "--mark": "80%", "--within": "1s", "--output": "a", "--run": "a b",
        "--run-limit": "2m", "--again": "1h", "--size": "5M", "--block": "0x10", "--folded": "a", "--speedscope": "b",
        "--process": "5", "--kind": "task", "--group": "number",
        "--order": "time", "--arena-max": "2", "--mmap-threshold": "1M", "--trim-threshold": "1M",
        "--tunables": "tcache_count=0", "--stop-at": "7", "--frames": "a", "--attach": "5",
        "--stacks": "1", "--at": "7", "--diff": "7..end", "--pprof": "c", "--calls": "d", "--growth": "5",
        "--tables": "blocks,types", "--partition": "host=a,pid", "--prometheus": ":9100",
        "--look-every": "10s", "--prometheus-host": "a.example", "--mode": "640", "--user": "0", "--budget": "9",
        "--rotate": "5M", "--rotate-every": "1d", "--keep": "3",
    }  # fmt: skip
    changing = {option.name for option in (*command.own_options, *command.listing_options)}
    common = re.findall(r"--[a-z-]+", text.partition("\nCommon options (")[2].partition("\n\n")[0])
    assert common == [option.name for option in options_of(Common)]
    for option in command.all_options:
        lines = re.findall(rf"^  {re.escape(option.spelling)}  +\S", text, re.MULTILINE)
        assert len(lines) == (option.name in changing)
        assert option.name in {*changing, *common, "--top", "--sort"}
        value = values.get(option.name) or (option.values[-1] if option.values else None)
        if option.metavar and not option.takes_next:
            values_of = [getattr(parse(command, [word])[0], option.key) for word in
                         (option.name, f"{option.name}={option.bare}", f"{option.name}={value}")]  # fmt: skip
            assert values_of[0] == values_of[1] != values_of[2]
        elif option.metavar:
            one, other = [f"{option.name}={value}"], [option.name, value]
            assert parse(command, one) == parse(command, other)
        else:
            assert getattr(parse(command, [option.name])[0], option.key) is True
    words = ["--json", "--top=3"]
    rng.shuffle(words)
    options, _, left = parse(command, [*words[:1], "word", *words[1:], "- 1"])
    assert options.json and options.top == 3 and left == ["word", "- 1"]


@pytest.mark.parametrize("words", [["--no"], ["--top"], ["--top=x"], ["--to=3"], ["--json=1"], ["--min=1M"], ["-j"]])
def test_wrong_options(words: list[str]) -> None:
    """Check one line that names the word; no abbreviation, no exit."""
    with pytest.raises(UsageError) as raised:
        parse(COMMANDS["arenas"], words)
    assert len(str(raised.value).splitlines()) == 1 and "help heap arenas" in str(raised.value)
    assert words[0].split("=")[0] in str(raised.value)


def test_defaults() -> None:
    """Check the documented defaults: --min=1M for holes, --top=20 for pyobjects; 0 lists all; a document has the
    same defaults."""
    assert parse(COMMANDS["holes"], [])[0] == holes_command.Options(minimum=1 << 20, sort="size", top=20)
    assert parse(COMMANDS["holes"], ["--fit=8M"])[0].fit == 8 << 20
    assert parse(COMMANDS["chunks"], [])[0] == chunks_command.Options(top=20, sort="size")
    assert parse(COMMANDS["chunks"], ["--arena=main", "--state=free,top"])[0] == chunks_command.Options(
        top=20, sort="size", arena=ArenaChoice(0, "glibc"), states=("free", "top")
    )
    assert parse(COMMANDS["pyobjects"], [])[0] == pyobjects_command.Options(top=20, sort="together")
    assert parse(COMMANDS["pyobjects"], ["--json"])[0].top == 20
    assert parse(COMMANDS["pyobjects"], ["--json", "--top=3"])[0].top == 3
    assert parse(COMMANDS["pyobjects"], ["--top=all"])[0].top is None
    assert parse(COMMANDS["pyobjects"], ["--top=0"])[0].top is None
