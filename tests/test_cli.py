"""The shell's ``gdbheap``: command lines, output and exit status, with pipes, terminals, Ctrl-C and full disks."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.gdb_side import runs
from support.programs import GDBHEAP, PATIENCE, Running, ask, c_program, gdbheap, has_no_answer, python_program, running
from support.terminal import on_terminal

from gdbheap.commands.surface.registry import COMMANDS, GROUPS
from gdbheap.report.text.style import COLOURS

NOUNS = [noun for noun in COMMANDS if noun]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A Python process with holes, at rest."""
    seed = random.randrange(1 << 30)
    print(f"seed of the fragmented process: {seed}")
    with running(python_program("stripped", "fragmented", seed, 60), tmp_path_factory.mktemp("target")) as started:
        yield started


def test_version_help_and_script() -> None:
    """Check the lines that need no target, and that each noun's help comes from its declaration."""
    assert gdbheap("--version").stdout.startswith("gdbheap ")
    script = Path(gdbheap("--gdb-script").stdout.strip())
    assert script.is_absolute() and script.name == "gdbheap" and script.is_file()
    overview = gdbheap("--help")
    assert overview.returncode == 0 and all(f"\n  {noun} " in overview.stdout for noun in NOUNS)
    for noun in NOUNS:
        command = COMMANDS[noun]
        done = gdbheap(command.noun, "--help")
        needs = command.needs
        lines = re.findall(f"^(Usage:|Example:) ({command.shell_name}.*)$", done.stdout, re.MULTILINE)
        assert done.returncode == 0 and done.stderr == ""
        for kind, part in (("Usage:", needs.words), ("Example:", needs.example)):
            assert any(found == kind and f"{line} ".find(f" {part}") > 0 for found, line in lines), (kind, part)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ([], 2),
        (["holes"], 2),
        (["nonsense"], 2),
        (["nonsense", "{pid}"], 2),
        (["holes", "{pid}", "--bogus"], 2),
        (["holes", "{pid}", "--min"], 2),
        (["holes", "{pid}", "--min=lots"], 2),
        (["holes", "{pid}", "--top=-1"], 2),
        (["pools", "{pid}", "--sort=colour"], 2),
        (["-x", "{pid}"], 2),
        (["chunks", "{pid}", "--max=lots"], 2),
        (["chunks", "{pid}", "--type"], 2),
        (["holes", "{pid}", "--fit=9000000T"], 2),
        (["arenas", "{pid}", "more"], 2),
        (["at", "{pid}"], 2),
        (["at", "{pid}", "here"], 2),
        (["at", "{pid}", "0x10"], 2),
        (["stats", "core.1"], 2),
        (["stats", "{pid}", "--clone"], 2),
        (["stats", "{pid}", "--exe=/bin/true"], 2),
        (["trim", "{pid}", "--seccomp"], 2),
        (["holes", "{pid}", "--exe=/bin/true"], 2),
        (["holes", "{pid}", "--sysroot=/"], 2),
        (["holes", "core.1", "--clone"], 2),
        (["install", "--bogus"], 2),
        (["/nowhere/core.1"], 4),
        (["{pid_max}"], 4),
        (["0"], 4),
        (["/"], 4),
        (["/dev/null"], 4),
        (["/dev/zero"], 4),
    ],
)
def test_bad_input(words: Sequence[str], status: int, target: Running) -> None:
    """Check for one clear line on standard error, no standard output, and the right status."""
    pid_max = int(Path("/proc/sys/kernel/pid_max").read_text()) - 1
    done = gdbheap(*(word.format(pid=target.pid, pid_max=pid_max) for word in words))
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and done.stderr.startswith("gdbheap")
    assert runs(target.pid)


def test_options_anywhere(target: Running) -> None:
    """Check that options may come before and after the noun and the target, with "=" or a blank."""
    pid = str(target.pid)
    expected = ask("holes", pid, "--min=64K", "--top=2")
    lines = (
        ["holes", pid, "--min", "64K", "--top", "2"],
        ["--json", "holes", "--top=2", pid, "--min=64k"],
        ["--top", "2", "--min=65536", "holes", pid],
    )
    for line in lines:
        done = gdbheap(*line, *([] if "--json" in line else ["--json"]))
        assert json.loads(done.stdout) == expected, line


def test_a_letter_and_its_value(target: Running, tmp_path: Path) -> None:
    """Check that a value may follow -o with or without a blank, and that unknown letters are refused."""
    for place, words in enumerate((["-o", f"{tmp_path}/0"], [f"-o{tmp_path}/1"])):
        done = gdbheap("owners", str(target.pid), "--format=folded", *words)
        assert done.returncode == 0 and (tmp_path / str(place)).stat().st_size > 0, done.stderr
    refused = gdbheap("arenas", str(target.pid), f"-o{tmp_path}/2")
    assert refused.returncode == 2 and "there is no option -o" in refused.stderr


def test_table_and_json_are_of_one_answer(target: Running) -> None:
    """Check that --bytes prints exact figures with separators, which equal those of the document."""
    answer = ask("arenas", str(target.pid))
    text = gdbheap("arenas", str(target.pid), "--bytes").stdout
    assert f"{answer['total']['system']:,}" in text and f"{answer['total']['in_use']:,}" in text
    assert " MB" not in gdbheap("arenas", str(target.pid)).stdout


@pytest.mark.parametrize("key", ["size", "resident", "address"])
def test_sort_and_top(key: str, target: Running) -> None:
    """Check that rows are sorted by the key and cut, and that the totals include all matching rows."""
    whole = ask("holes", str(target.pid), "--min=4K", f"--sort={key}")
    cut = ask("holes", str(target.pid), "--min=4K", f"--sort={key}", "--top=3")
    values = [hole[key] for hole in whole["rows"]]
    assert values == sorted(values, reverse=key != "address")
    assert cut["rows"] == whole["rows"][:3]
    assert (cut["count"], cut["total"]) == (whole["count"], whole["total"])
    assert whole["count"] == len(whole["rows"]) > 3


def test_stopped_time_is_told(target: Running) -> None:
    """Check that the stopped time is printed on a terminal or on request, and that standard error is empty
    otherwise."""
    assert gdbheap("arenas", str(target.pid)).stderr == ""
    told = gdbheap("arenas", str(target.pid), "--verbose").stderr
    assert len(told.splitlines()) == 1 and f"process {target.pid} was stopped for " in told


def test_closed_pipe_is_quiet(target: Running) -> None:
    """Check that ``gdbheap … | head -1`` prints the first line and no error."""
    reading, writing = os.pipe()
    command = [str(GDBHEAP), "holes", str(target.pid), "--min=0"]
    with subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True) as process:
        os.close(writing)
        os.close(reading)
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(PATIENCE) == 0


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_full_disk(options: list[str], target: Running) -> None:
    """Check that writing to /dev/full gives one line and status 1."""
    with open("/dev/full", "w") as full:
        command = [str(GDBHEAP), "info", str(target.pid), *options]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "No space left" in done.stderr


def test_closed_standard_output(target: Running) -> None:
    """Check that a closed standard output gives one line of error too."""
    command = f"exec '{GDBHEAP}' arenas {target.pid} >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


def test_terminal(target: Running) -> None:
    """Check that tables are cut to the width, headings are bold without NO_COLOR, and the stopped time is printed.

    Output to a pipe is not cut.
    """
    words = ["holes", str(target.pid), "--min=4K"]
    shown, status = on_terminal(words, 60, NO_COLOR="")
    assert status == 0 and "\033[1m" in shown and "was stopped for" in shown
    plain, _ = on_terminal(words, 60, NO_COLOR="1")
    assert "\033" not in plain
    rows = [line for line in plain.splitlines() if line.startswith("0x")]
    assert rows and all(len(line) <= 60 for line in rows) and any(line.endswith(">") for line in rows)
    piped = [line for line in gdbheap(*words).stdout.splitlines() if line.startswith("0x")]
    assert len(piped) == len(rows) and max(map(len, piped)) > 60


def test_colours_of_a_terminal(target: Running) -> None:
    """Check the colours of the ledger's lines, and that there are none with NO_COLOR or on a plain terminal.

    Without colours it is the same text, which is also the text in a pipe if the terminal is wide enough.
    """
    words = [str(target.pid), "--clone", "--detail"]
    bright, plain, dumb = (
        # On a busy machine progress is shown first.
        re.sub(
            r"\r?\033\[K(gdbheap: .* %\r\033\[K)*|gdbheap: process.*\n|\n*Container /(.|\n)*?(\n\n|\Z)",
            "",
            on_terminal(words, 400, **variables)[0],
        )
        for variables in ({"NO_COLOR": ""}, {"NO_COLOR": "1"}, {"NO_COLOR": "", "TERM": "dumb"})
    )
    assert f"{COLOURS['used']}blocks in use" in bright and f"{COLOURS['free']}freed, kept by glibc" in bright
    assert "\033" not in plain + dumb

    def table(text: str) -> list[str]:
        lines = text.splitlines()
        first = next(place for place, line in enumerate(lines) if line.startswith("what "))
        return [line for line in lines[first:] if "files: " not in line and not line.startswith("total")]

    tables = [table(re.sub(r"\033\[[0-9;]*m", "", text)) for text in (bright, plain, dumb)]
    assert [line.split("  ")[0] for line in tables[0]] == [line.split("  ")[0] for line in tables[1]]
    assert tables[1][:6] == tables[2][:6] == table(gdbheap(*words).stdout)[:6] and len(tables[0]) > 10


def test_a_screen_has_no_escapes_in_it(target: Running) -> None:
    """Check that gdbheap top shows its table on the whole screen without escapes for bold letters."""
    shown, status = on_terminal(["top", str(target.pid), "--every=50ms", "--count=3"], 120, NO_COLOR="")
    assert status == 0 and "growth" in shown and "^[" not in shown


# Command lines that cannot be answered for any target.
IMPOSSIBLE = [
    ["report", "{target}"],
    ["report", "{target}", "-o", "/nowhere/page.html"],
    ["report", "{target}", "-o", "page.html", "--with-contents", "--no-text"],
    ["export", "{target}"],
    ["export", "{target}", "-o", "x", "--format=heapsnapshot"],
    ["sql", "{target}", "select 1", "--csv", "--json"],
    ["record", "{target}"],
    ["snapshot", "{target}"],
    ["snapshot", "{target}", "/nowhere/look.heap"],
    ["snapshot", "{target}", "look.heap", "--with-contents", "--no-text"],
    ["{target}", "--svg=/nowhere/x.svg"],
    ["owners", "{target}", "--folded=/nowhere/x"],
    ["retained", "{target}", "--pprof=/nowhere/x"],
    ["pyobjects", "{target}", "--list", "--buffers"],
    ["pyobjects", "{target}", "--by=line", "--type=dict"],
    ["pyobjects", "{target}", "--by=line", "--sort=type"],
    ["chunks", "{target}", "--sort=count"],
    ["chunks", "{target}", "--by=type", "--state=free"],
    ["trim", "{target}", "--yes", "--dry-run"],
    ["watch", "{target}"],
    ["plot", "{target}"],
    ["why", "app.CACHE", "{target}"],
    ["refs", "0x10", "{target}"],
]


def test_the_target_comes_first(tmp_path: Path) -> None:
    """Check that the error about the order is given only if the address comes before the target."""
    said = gdbheap("why", "cache", "1", cwd=tmp_path).stderr
    assert said == "gdbheap why: the target comes first: gdbheap why 1 cache\n"
    assert "the target comes first" not in gdbheap("snapshot", "nothing", "1", cwd=tmp_path).stderr


@pytest.mark.parametrize("words", IMPOSSIBLE, ids=" ".join)
def test_what_cannot_be_answered_opens_nothing(words: list[str], tmp_path: Path) -> None:
    """Check that wrong usage is refused before the process, which does not exist, is searched."""
    gone = str(int(Path("/proc/sys/kernel/pid_max").read_text()) - 1)
    done = gdbheap(*(word.format(target=gone) for word in words), cwd=tmp_path)
    assert done.returncode == 2 and has_no_answer(done) and done.stderr.count("\n") == 1, (done.returncode, done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_ascii_terminal(target: Running) -> None:
    """Check that a character that the locale lacks is printed as its code."""
    environment = {**os.environ, "LC_ALL": "C", "PYTHONIOENCODING": "ascii:strict", "PYTHONCOERCECLOCALE": "0"}
    for words in (["info", str(target.pid)], ["at", str(target.pid), "é"]):
        done = subprocess.run([str(GDBHEAP), *words], env=environment, capture_output=True, timeout=PATIENCE)
        assert done.returncode in (0, 2) and (done.stdout + done.stderr).isascii()
        assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_ended_while_it_reads(sent: signal.Signals, rng: random.Random, tmp_path: Path) -> None:
    """Check that Ctrl-C gives one line and status 1, and that the process runs on after any signal."""
    with running(python_program("stripped", "pools", rng.randrange(1 << 30), 200_000), tmp_path) as started:
        process = subprocess.Popen([str(GDBHEAP), "pyobjects", str(started.pid)], stdout=-1, stderr=-1, text=True)
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and "TracerPid:\t0\n" in Path(f"/proc/{started.pid}/status").read_text():
            assert time.monotonic() < deadline
        process.send_signal(sent)
        _, errors = process.communicate(timeout=PATIENCE)
        if sent == signal.SIGINT and process.returncode:
            assert process.returncode == 1 and len(errors.splitlines()) == 1 and "interrupted" in errors
        assert wait_until_it_runs(started.pid)
        started.rest()


def wait_until_it_runs(pid: int) -> bool:
    """Return whether a process begins to run. The kernel needs a moment after its tracer was killed."""
    deadline = time.monotonic() + 10
    while not runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return runs(pid)


def test_no_python(rng: random.Random, tmp_path: Path) -> None:
    """Check that a program without Python gives status 5 and one line, and that malloc is still answered."""
    with running(c_program("holes", rng.randrange(1 << 30), 5, 100_000, 0, 0, tmp_path / "table"), tmp_path) as started:
        for noun in ("pools", "pyobjects"):
            done = gdbheap(noun, str(started.pid))
            assert done.returncode == 5 and len(done.stderr.splitlines()) == 1 and "Python" in done.stderr
        assert ask("arenas", str(started.pid))["target"]["python"] is None


def test_truncated_core(rng: random.Random, tmp_path: Path) -> None:
    """Check that a truncated core is answered as far as possible, with status and damage."""
    with running(python_program("stripped", "fragmented", rng.randrange(1 << 30), 20), tmp_path) as started:
        core = started.kernel_core()
    with core.open("r+b") as file:
        file.truncate(core.stat().st_size * 9 // 10)
    assert ask("", str(core), status=1)["damage"]


@pytest.mark.parametrize("words", [["heap"], ["--bytes", "heap"]])
def test_heap_is_understood(words: list[str], target: Running) -> None:
    """Check that "heap" is accepted as in gdb: alone, before a noun, and with help."""
    answers = [json.loads(gdbheap(*typed, str(target.pid), "--json").stdout) for typed in (words, words[:-1])]
    # A page of a file may become resident or absent between the two reads.
    assert len({(answer["command"], *sorted(line["id"] for line in answer["ledger"])) for answer in answers}) == 1
    pools = [gdbheap(*before, "sizes", str(target.pid), "--json").stdout for before in (words[-1:], [])]
    assert pools[0] == pools[1] and '"command": "heap sizes"' in pools[0]
    told = gdbheap(*words, "--help")
    assert told.returncode == 0 and "Usage: gdbheap TARGET [" in told.stdout and "\n  --detail  " in told.stdout
    assert gdbheap("heap").returncode == 2


def test_help_is_one_screen() -> None:
    """Check that help lists all commands in their groups in 60 lines, including the shell's own, and that each has
    help."""
    shown = gdbheap("--help").stdout
    assert len(shown.splitlines()) <= 60 and max(map(len, shown.splitlines())) <= 80
    for title, nouns in GROUPS.items():
        group = shown.split(f"\n{title}:\n")[1]
        assert all(re.search(rf"^  {noun or 'PID'} +\w", group, re.MULTILINE) for noun in nouns), title
    assert {noun for nouns in GROUPS.values() for noun in nouns} == set(COMMANDS)
    assert all(re.search(rf"^  {verb} +\w", shown, re.MULTILINE) for verb in ("install", "help", "schema"))
