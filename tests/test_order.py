"""Order: every list that a command can sort is in the order of each of its keys, and every list of an answer whose
docstring promises an order has it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.library import heap_of
from support.nouns import GRAPHS, PLAIN
from support.programs import KINDS, c_program, interpreter_of, running

from gdbheap.answers.unreachable import GROUPS
from gdbheap.commands.surface import session
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.errors import NotAPython, Unsupported, UsageError
from gdbheap.heap import Heap

TARGETS = ("Python", "C")
# Equal values, cycles that nothing collects, tasks that wait, objects of many sizes, and pages that few blocks pin.
PROGRAM = """
import asyncio, gc, os, random, sys
rng = random.Random(int(sys.argv[1]))
gc.disable()
class One: pass
class Two(One): pass
def cycle(kind):
    made = kind()
    made.self, made.data = made, bytes(rng.randrange(100, 5000))
for _ in range(300): cycle(rng.choice([One, Two]))
values = [("%x" % rng.getrandbits(64)) * rng.randrange(1, 300) for _ in range(60)]
kept = {"texts": ["".join([one, "!"]) for one in values for _ in range(rng.randrange(1, 9))]}
kept["bytes"] = [one.encode() * 2 for one in values for _ in range(rng.randrange(1, 9))]
kept["numbers"] = [float("1.5") for _ in range(500)] + [7 ** 99 + int("0") for _ in range(100)]
kept["tables"] = [dict.fromkeys(range(rng.randrange(200))) for _ in range(200)] + [set(range(99)), bytearray(999)]
kept["pins"] = [bytes(700) for _ in range(20_000)][::80]
async def waits(depth, gate):
    await (waits(depth - 1, gate) if depth else gate.wait())
async def main():
    gate = asyncio.Event()
    tasks = [asyncio.ensure_future(waits(rng.randrange(4), gate)) for _ in range(100)]
    await asyncio.sleep(0.01)
    os.read(0, 1)
asyncio.run(main())
"""
# Lists and the values by which they are sorted in answers, before --sort and --top: by the noun, options, and field.
PROMISES: dict[tuple[str, tuple[str, ...], str], Callable[[Any], Any]] = {
    ("holes", ("--min=1",), "rows"): lambda row: -row.size,
    ("pins", ("--min=1",), "rows"): lambda row: row.size - row.would_free,
    ("pins", ("--min=1",), "by_kind"): lambda row: (-row.would_free, -row.blocks, row.what),
    ("duplicates", (), "rows"): lambda row: -row.saved,
    ("duplicates", (), "types"): lambda row: (-row.saved, row.type),
    ("owners", (), "owners"): lambda row: -row.bytes,
    ("owners", ("--by=type",), "groups"): lambda row: -row.bytes,
    ("retained", (), "rows"): lambda row: -row.most,
    ("unreachable", (), "rows"): lambda row: (GROUPS.index(row.group), -row.bytes),
    ("pyobjects", ("--by=size",), "rows"): lambda row: (-row.own, str(row.key)),
    ("pyobjects", ("--by=module",), "rows"): lambda row: (-row.own, str(row.key)),
    ("pyobjects", ("--by=value",), "rows"): lambda row: -row.own,
    ("pyobjects", ("--by=fill",), "rows"): lambda row: (row.items - row.room, row.type),
    ("tasks", (), "rows"): lambda row: (-row.count, row.coroutine, row.address),
    ("pools", (), "rows"): lambda row: row.size,
    ("chunks", (), "rows"): lambda row: -row.size,
    ("chunks", ("--sort=address",), "rows"): lambda row: row.address,
}


# Lists that a program like this one has few rows of.
FEW = ("owners",)


@pytest.fixture(scope="module", params=TARGETS)
def heap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Heap]:
    """Yield the heap of a Python with objects of all kinds, or of a C program with several arenas."""
    folder = tmp_path_factory.mktemp("order")
    if request.param == TARGETS[0]:
        command = [interpreter_of(KINDS[0]), "-I", "-c", PROGRAM, str(random.getrandbits(30))]
    else:
        command = c_program("recorder", 3, random.getrandbits(30), 20_000, 2000, 20_000, 0, folder / "table")
    with running(command, folder) as found, heap_of(str(found.pid)) as opened:
        yield opened


def asked(heap: Heap, noun: str, *words: str) -> session.Result | None:
    """Return the result of a command; None if the command has no answer about this program."""
    command = COMMANDS[noun]
    options, _, _ = parse(command, list(words))
    try:
        return session.ask(command, heap, options)
    except (NotAPython, Unsupported, UsageError):
        return None


def sorted_as_promised(values: list[Any]) -> bool:
    """Return whether numbers come first, the largest of them first, then words in alphabetical order, then None."""
    numbers = [value for value in values if isinstance(value, (int, float))]
    words = [value for value in values if isinstance(value, str)]
    rest = [value for value in values if value is None]
    assert len(numbers) + len(words) + len(rest) == len(values)
    return values == [*sorted(numbers, reverse=True), *sorted(words), *rest]


SORTED = {noun: COMMANDS[noun] for noun in (*PLAIN, *GRAPHS) if COMMANDS[noun].sorts and COMMANDS[noun].sorts_rows}


@pytest.mark.parametrize("noun", SORTED)
def test_every_key_of_sort(noun: str, heap: Heap, rng: random.Random) -> None:
    """Check that the rows are in the order of each key, that --top cuts the end of the same list, and that the first
    key is the default."""
    command = SORTED[noun]
    default = asked(heap, noun, "--top=all")
    if default is None or not hasattr(default.answer, command.rows):
        return
    for number, (name, key) in enumerate(command.sorts.items()):
        whole = asked(heap, noun, f"--sort={name}", "--top=all")
        if whole is None:
            continue
        rows = getattr(whole.answer, command.rows)
        try:
            values = [key(row) for row in rows]
        except AttributeError:
            continue  # The key is for rows of another --by.
        if noun != "chunks":
            assert sorted_as_promised(values), (name, values[:20])
        assert len(rows) == len(getattr(default.answer, command.rows))
        count = rng.randrange(1, 9)
        cut = asked(heap, noun, f"--sort={name}", f"--top={count}")
        assert cut is not None and getattr(cut.answer, command.rows) == rows[:count]
        assert number or rows == getattr(default.answer, command.rows)


@pytest.mark.parametrize(("noun", "words", "field"), PROMISES)
def test_what_answers_promise(noun: str, words: tuple[str, ...], field: str, heap: Heap) -> None:
    """Check the order of lists before --sort, which other programs get from the library."""
    found = asked(heap, noun, *words, "--top=all")
    rows = [] if found is None else getattr(found.whole, field, [])
    values = [PROMISES[noun, words, field](row) for row in rows]
    assert values == sorted(values), values[:20]
    # Otherwise the test shows nothing.
    assert len(set(values)) > 1 or not heap.is_python or noun in FEW
