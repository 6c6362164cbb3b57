"""``--no-text``: no contents of strings, bytes and keys anywhere, for a program that keeps a random token in each of
them. The same commands without the option show it, so these tests can fail."""

from __future__ import annotations

import gzip
import json
import os
import random
import re
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from support import gdb_side
from support.graphs import evaluated, truth_of
from support.library import heap_of
from support.nouns import COMPARING, FOLLOWING, PARTICULAR, SHELL_ONLY
from support.programs import (
    GDBHEAP,
    PATIENCE,
    RELEASE,
    RELEASES,
    Running,
    gdbheap,
    interpreters,
    plain_environment,
    python_program,
    release_program,
    running,
)

from gdbheap.allocators.glibc.allocator import GlibcAllocator
from gdbheap.answers.why import why
from gdbheap.commands.inferior_calls.inferior_call import Calls
from gdbheap.commands.surface.options import Common, Filed, Pictured
from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.commands.surface.session import Result, ask, ask_about_looks, present
from gdbheap.contents.python.text.disclosure import NO_TEXT, VARIABLE, Disclosure, without_words
from gdbheap.errors import GdbheapError, Unsupported, UsageError
from gdbheap.heap import Heap
from gdbheap.report.text.style import Style
from gdbheap.snapshots.file import ENTRY, write
from gdbheap.snapshots.snapshot import take
from gdbheap.targets.target import Damage, Target

pytestmark = pytest.mark.skipif(not interpreters(), reason=f"no CPython {RELEASE}")

# The pairs of the vault, and the number with which the first page and a snapshot report it as a leak.
PAIRS, LEAKED_PAIRS = 6_000, 60_000
# Each command with each of its options that changes an answer, and whether it shows contents. ADDRESS is in turn each
# place that the program names. Commands that call into the process (stats, trim --yes) are not here.
LINES = {
    "": ["", "--quick", "--budget=9", "--detail PICTURES", "--format=folded -o TREE", "--since=LOOK"],
    "arenas": ["", "--detail"],
    "holes": ["--min=0", "--min=0 --path --top=300", "--fit=1M"],
    "pins": ["", "--path --min=0", "--allocator=pymalloc"], "sizes": [""],
    "chunks": ["", "--min=1K --max=1M --arena=main --state=used", "--type=bytes", "--type=str", "--by=type",
        "--by=stack PICTURES --format=svg", "--by=stack --format=folded -o TREE"],
    "pools": ["", "--detail"], "pyobjects": ["", "--type=str --list", "--list --top=1000", "--buffers",
        "--by=value --top=all", "--by=size", "--by=length", "--by=module", "--by=fill", "--by=line",
        "--type=__main__.* --group=value"],
    "trim": ["", "--dry-run --pad=1M"], "map": ["", "--cell=64K", "--svg=SVG"],
    "at": ["ADDRESS", "ADDRESS --path"], "refs": ["ADDRESS --top=all"], "why": ["ADDRESS"],
    "retained": ["--top=500", "--by=type PICTURES", "--by=module",
        "--format=speedscope", "--format=pprof -o TREE"], "unreachable": [""],
    "owners": ["--min=1K --top=300 --by=block", "--by=array --top=all", "PICTURES",
        "--format=svg", "--format=svg -o TREE"],
    "threads": ["", "--values --c-frames"], "tasks": ["", "--list", "--kind=task --retained"],
    "duplicates": ["--top=all", "--top=3 --holders --type=str"], "check": [""], "info": [""],
    "check-advice": [""], "diff": ["", "--limit=1G"],
    "snapshot": ["FILE", "FILE --owners", "FILE --with-contents --blocks"],
}  # fmt: skip
DRAWN = "--folded=FOLDED --svg=SVG --speedscope=SPEED --pprof=PROFILE"
CALLING = {"stats"}
# The list in docs/targets.md. "pins" shows contents too if an object with a secret holds a page, "tasks" if a task has
# a name (tests/test_oracle_tasks.py), and the first page if the path to a holder's largest block explains the holder.
SHOWING = {
    "holes",
    "pools",
    "pyobjects",
    "at",
    "refs",
    "why",
    "threads",
    "retained",
    "owners",
    "snapshot",
    "diff",
    "duplicates",
}
SOMETIMES = {"", "pins", "tasks"}
# A dict has its values in another place in each of these.
PLACES = [release for release in RELEASES if release in ("2.7", "3.6", "3.10", "3.12", "3.13", RELEASE)]


@pytest.fixture
def token(rng: random.Random) -> str:
    """Return eight characters that occur nowhere else."""
    return "".join(rng.choice("bcdfghjklmnpqrstvwxz") for _ in range(8))


def started(token: str, folder: Path, *more: str, pairs: int = PAIRS) -> AbstractContextManager[Running]:
    """Start the program; its environment has the token too."""
    command = [interpreters()[0].executable, "-s", *python_program(interpreters()[0].kind, "secret_texts")[2:]]
    return running([*command, token, str(10 if more else pairs), *more], folder, {"TOKEN": token})


def places_of(target: Running) -> dict[str, int]:
    """Return the addresses of the objects, as the program reports them."""
    found: dict[str, int] = json.loads((target.directory / "places").read_text())
    return found


def lines_of(noun: str, places: dict[str, int], folder: Path) -> list[list[str]]:
    """Return the arguments after a noun, of each line of LINES, for text and JSON."""
    files = {
        "SVG": "picture.svg",
        "FOLDED": "folded",
        "SPEED": "speedscope",
        "PROFILE": "profile",
        "FILE": "look.heap",
        "LOOK": "earlier.heap",
        "TREE": "tree",
    }
    lines = [line.replace("PICTURES", DRAWN) for line in LINES[noun]]
    for word, name in files.items():
        lines = [line.replace(word, str(folder / name)) for line in lines]
    lines = [
        line.replace("ADDRESS", f"{at:#x}") for line in lines for at in (places.values() if "ADDR" in line else [0])
    ]
    return [[*line.split(), *form] for line in lines for form in ([], ["--json"])]


def printed(heap: Heap, noun: str, words: list[str], folder: Path) -> str:
    """Return all that one command prints or writes, or the error that it ends with."""
    options, _extra, left = parse(COMMANDS[noun], words)
    if isinstance(options, Filed):
        options.file = left[0]
    elif left:
        options.address = int(left[0], 16)
    if getattr(options, "since", None):
        write(options.since, take(heap))
    try:
        answered = compared(heap, noun, options) if noun in COMPARING else ask(COMMANDS[noun], heap, options)
    except (UsageError, Unsupported) as error:
        return str(error)
    said = present(answered, Style(rss=heap.target.rss.bytes))
    if isinstance(options, Filed):
        with zipfile.ZipFile(options.file) as archive:
            said += archive.read(ENTRY).decode()
    files = options.pictures.values() if isinstance(options, Pictured) else filter(None, [vars(options).get("svg")])
    return said + "".join(map(content, files))


def content(path: str) -> str:
    """Return the contents of a picture's file; a profile is unpacked."""
    data = Path(path).read_bytes()
    return (gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data).decode("utf-8", "replace")


def compared(heap: Heap, noun: str, options: Common) -> Result:
    """Return the changes since a snapshot without objects."""
    heap.disclosure.contents = not options.no_text
    look = take(heap, with_owners=True)
    before = replace(look, snapshot=replace(look.snapshot, owners=[]))
    return ask_about_looks(COMMANDS[noun], [before, look], options)


def readable(text: str) -> str:
    """Return the text and, before it, the characters in its large numbers."""
    numbers = (int(found, 0) for found in re.findall(r"\b(?:0x[0-9a-f]+|[1-9]\d*)\b", text))
    words = b" ".join(number.to_bytes(8, "little") for number in set(numbers) if 1 << 47 <= number < 1 << 64)
    return words.decode("latin-1") + text


def test_the_documents_name_those_that_show_contents() -> None:
    """Check that the section of docs/targets.md lists all commands that show contents, and no other."""
    text = (Path(__file__).resolve().parent.parent / "docs/targets.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| `heap ?(\w*)[^`]*` \|", text.split("## Which contents are shown")[1].split("\n## ")[0], re.M
    )
    assert set(rows) == SHOWING | SOMETIMES | set(PARTICULAR)


def test_every_command_and_option_is_tried() -> None:
    """Check that every command and option is tried, or is known to print nothing of memory."""
    assert set(LINES) | CALLING == set(COMMANDS) - {*SHELL_ONLY, *FOLLOWING, *PARTICULAR}
    # A log of calls has names of functions, and no contents.
    apart = ("--yes", "--seccomp", "--calls", "--mode")
    for noun, lines in LINES.items():
        tried = " ".join(lines).replace("PICTURES", DRAWN)
        own = [option.name for option in COMMANDS[noun].own_options if option.name not in apart]
        missing = [name for name in own if name not in tried]
        assert not missing, (noun, missing)


@pytest.mark.cases(1)
@pytest.mark.parametrize("form", ["process", "gcore"])
def test_no_command_shows_contents(form: str, token: str, tmp_path: Path) -> None:
    """Check all commands on one Heap, as gdb keeps it: first with contents, of which nothing may remain afterwards."""
    with started(token, tmp_path) as target:
        places = places_of(target)
        with heap_of(target.as_form(form)) as heap:
            lines = [(noun, words) for noun in LINES for words in lines_of(noun, places, tmp_path)]
            shows = {noun for noun, words in lines if token in printed(heap, noun, words, tmp_path)}
            assert shows - SOMETIMES == SHOWING
            check_hidden(heap, lines, token, tmp_path)
            at_text = printed(heap, "at", [f"{places['ascii']:#x}", "--json"], tmp_path)
            assert json.loads(at_text)["object"]["text"] == repr(f"{token}00/ascii")


def check_hidden(heap: Heap, lines: list[tuple[str, list[str]]], token: str, folder: Path) -> None:
    """Check that no line shows the token where contents are to be hidden."""
    for noun, words in lines:
        said = printed(heap, noun, [*words, NO_TEXT], folder)
        where = said.find(token)
        assert where < 0, (noun, words, said[max(where - 200, 0) : where + 80])


def test_no_finding_shows_contents(token: str, tmp_path: Path) -> None:
    """Check that the path to a container that seems to leak, which leads through a key, is hidden in all advice."""
    with started(token, tmp_path, pairs=LEAKED_PAIRS) as target:
        places = places_of(target)
        with heap_of(str(target.pid)) as heap:
            lines = [(noun, words) for noun in ("", "snapshot") for words in lines_of(noun, places, tmp_path)]
            findings = json.loads(printed(heap, "", ["--json"], tmp_path))["findings"]
            assert [row for row in findings if row["id"] == "leak-like" and token in json.dumps(row)], findings
            check_hidden(heap, lines, token, tmp_path)


def test_lengths_and_names_stay(token: str, tmp_path: Path) -> None:
    """Check that the replacement for contents states their length, and that attributes, variables, types and modules
    keep their names."""
    with started(token, tmp_path) as target:
        places = places_of(target)
        with heap_of(str(target.pid)) as heap:

            def text(noun: str, place: str) -> str:
                return printed(heap, noun, [f"{places[place]:#x}", NO_TEXT], tmp_path)

            assert "<str of 16>" in text("at", "ascii") and "<str of 11>" in text("at", "four")
            assert "Text(<str of 16>)" in text("at", "text")
            assert "<bytes of 10>" in text("at", "bytes") and "<bytearray of 10>" in text("at", "bytearray")
            assert "ValueError(<str of 19>, <str of 11>)" in text("at", "error")
            assert "Point(name=<str of 16>, x=1)" in text("at", "point")
            assert "Row(<str of 15>=1, x=2)" in text("at", "row")
            assert "login=<str of 18>, number=7" in text("at", "account")
            assert re.search(r"\{\(<str of 10>, <int>\): .*, <int>: ", text("at", "tuples"))
            assert "held" in text("why", "reached") and "[<str of 10>]" in text("why", "reached")
            assert "['held']" in text("refs", "instance") or ".held" in text("refs", "instance")
            assert "<str of 24>" in text("why", "attribute")


def test_the_option_and_the_variable(token: str, tmp_path: Path) -> None:
    """Check the shell's option, typed or in the environment, where 0 and an empty value do not count."""
    with started(token, tmp_path) as target:
        line = ["at", str(target.pid), f"{places_of(target)['ascii']:#x}"]
        shown = [value for value in ("", "0", "1", "yes") if token in asked(line, value)]
        assert shown == ["", "0"]
        assert token not in asked([*line, NO_TEXT], "") and token in asked(line, None)


def asked(line: list[str], value: str | None) -> str:
    """Return all that the command prints with that value of the variable."""
    environment = {**plain_environment(), **({} if value is None else {VARIABLE: value})}
    environment = {name: found for name, found in environment.items() if name != VARIABLE or value is not None}
    done = subprocess.run([str(GDBHEAP), *line], capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("gdb") is None, reason="no gdb")
def test_gdb_forgets_what_it_has_shown(token: str, tmp_path: Path) -> None:
    """Check one gdb: without the option, then with it, on cached data of the first; then by the environment."""
    with started(token, tmp_path) as target:
        environment = gdb_side.home(tmp_path)
        address = f"{places_of(target)['reached']:#x}"
        commands = [f"heap why {address} --json", f"heap why {address} --json {NO_TEXT}"]
        done = gdb_side.batch(["-p", str(target.pid)], commands, environment)
        whole, without = (json.dumps(document) for document in gdb_side.documents(done))
        assert token in whole and token not in without
        done = gdb_side.batch(["-p", str(target.pid)], commands[:1], {**environment, VARIABLE: "1"})
        assert token not in json.dumps(gdb_side.documents(done)[0])


def test_damage_shows_no_characters(token: str, tmp_path: Path) -> None:
    """Check text that was written over the header of a chunk: its size is eight characters, which a number would
    show too."""
    with started(token, tmp_path, "damaged") as target:
        shown = [gdbheap("check", str(target.pid), *more) for more in ([], ["--json"], [NO_TEXT], ["--json", NO_TEXT])]
        said = [readable(done.stdout + done.stderr) for done in shown]
        assert [token in text for text in said] == [True, True, False, False], said[0]
        assert all(done.returncode == 1 for done in shown)


def spoilt(target: Running, words: Callable[[Heap], dict[int, bytes]]) -> None:
    """Write words into the memory of the program, which is idle from now on."""
    with heap_of(str(target.pid)) as heap:
        places = words(heap)
    with open(f"/proc/{target.pid}/mem", "r+b", buffering=0) as memory:
        for place, word in places.items():
            os.pwrite(memory.fileno(), word, place)


def secret_top(heap: Heap, token: bytes) -> dict[int, bytes]:
    """Return words that make the token the address of the top chunk, and disable the other means of finding it."""
    arena = heap.allocator(GlibcAllocator).malloc.arenas[0]
    return {arena.address + arena.layout["top"]: token, arena.address + arena.layout["system_mem"]: token}


def secret_sizes(heap: Heap, token: bytes) -> dict[int, bytes]:
    """Return words that make the token the size of the one mmapped chunk."""
    par = heap.allocator(GlibcAllocator).malloc.par
    return {par.address + par.layout["n_mmaps"]: b"\1\0\0\0", par.address + par.layout["mmapped_mem"]: token}


@pytest.mark.parametrize(("words", "noun"), [(secret_top, "check"), (secret_sizes, "")])
def test_words_of_memory_in_damage_and_warnings(
    words: Callable[[Heap, bytes], dict[int, bytes]], noun: str, token: str, tmp_path: Path
) -> None:
    """Check that characters in malloc's addresses or sizes appear neither as the place of damage nor in warnings."""
    # Below 1 << 48, with a byte that is no character, and a multiple of a page, as malloc requires.
    secret = f"\0p{token[:4]}\0\0".encode()
    numbers = {int.from_bytes(secret, "little") + more for more in (0, 8)}
    with started(token, tmp_path, "few") as target:
        spoilt(target, lambda heap: words(heap, secret))
        for form in ([], ["--json"]):
            shown = gdbheap(*filter(None, [noun]), str(target.pid), *form)
            hidden = gdbheap(*filter(None, [noun]), str(target.pid), *form, NO_TEXT)
            assert numbers & numbers_of(shown.stdout), shown
            assert not numbers & numbers_of(hidden.stdout + hidden.stderr), hidden


def numbers_of(text: str) -> set[int]:
    """Return the numbers in a text, in any notation."""
    found = re.findall(r"\b(?:0x[0-9a-f]+|[1-9][\d,]*)\b", text)
    return {int(number.replace(",", ""), 0) for number in found}


@pytest.mark.parametrize("noun", ["stats", "trim"])
def test_errors_of_calls(noun: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the setting is known before anything is computed, and that the error that ends a call shows no
    contents."""
    shown = []

    def fails(heap: Heap, calls: object, options: object) -> None:
        shown.append(heap.disclosure.contents)
        raise GdbheapError("an odd lock: 0x6e6f6973736573")

    monkeypatch.setattr(type(COMMANDS[noun]), "call_for", lambda command, options: SimpleNamespace(make=fails))
    words = ["--yes", NO_TEXT] if noun == "trim" else [NO_TEXT]
    options, _extra, _left = parse(COMMANDS[noun], words)
    with pytest.raises(GdbheapError, match="an odd lock: <word of 7 bytes>"):
        ask(COMMANDS[noun], Heap(Target("process")), options, cast(Calls, object()))
    assert shown == [False]


def test_places_are_shown() -> None:
    """Check that an address in a mapping is shown, whatever its bytes are, and that one in no mapping, which may be
    text, is not."""
    place = 0x556A_6B6C_6D6E
    disclosure = Disclosure(False, lambda number: place <= number < place + 4096)
    damage = disclosure.damage(Damage(place + 16, "size", f"{place:#x}", "0x6e6f69737365"))
    assert damage == Damage(place + 16, "size", f"{place:#x}", "<word of 6 bytes>")
    assert disclosure.damage(Damage(0x6E6F69737365, "top", "", "")).address == 0


@pytest.mark.parametrize(
    "number", [0x6E6F6973736573, 1 << 48, (1 << 64) - 1, 0x64636261, 0x0A6465636261, 0x6162070A6465]
)
def test_numbers_that_may_be_characters(number: int) -> None:
    """Check numbers as printed: in hexadecimal, in decimal, with separators; sizes and addresses of heaps stay."""
    plain = "at most 4,096 and 0x7f31c0de1230, not 1048576"
    for text in (f"{number:#x}", f"{number}", f"{number:,}"):
        found = without_words(f"{text} in front of {plain}")
        assert found == f"<word of {(number.bit_length() + 7) // 8} bytes> in front of {plain}"


@pytest.mark.parametrize("release", PLACES)
def test_paths_are_python_all_the_same(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a hidden key is its index in the dict, and that the expression still leads there."""
    some, few = 10, 100
    command = release_program(release, "references", rng.getrandbits(32), few, some, tmp_path / "truth")
    with running(command, tmp_path) as target:
        truth = {address: name for name, found in truth_of(tmp_path).items() for address in found}
        with heap_of(str(target.pid)) as heap:
            expected = {address: why(heap, address).expression for address in truth}
            heap.disclosure.contents = False
            found = {address: why(heap, address).expression for address in truth}
        both = [address for address in truth if expected[address] and found[address]]
        values = evaluated(target, [str(found[address]) for address in both], tmp_path)
        assert values == both
        lost = [truth[address] for address in truth if expected[address] and not found[address]]
        assert len(lost) * 10 <= len(truth), lost
