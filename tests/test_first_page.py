"""The first page: its verdict, the holders, the next commands, and the folded lines."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import ask, gdbheap, interpreters, running

from gdbheap.answers.shared_out import HolderPart
from gdbheap.findings.holder.rule import MainHolder
from gdbheap.first_page.ledger import Ledger, Line, Rss, ledger
from gdbheap.first_page.main_holders import BUDGET, MIN_PERCENT, MOST
from gdbheap.first_page.summary import Summary
from gdbheap.host.program_name import program_name
from gdbheap.report.text.style import Style
from gdbheap.report.words.ledger import render
from gdbheap.report.words.verdict import verdict
from gdbheap.targets.target import Meanwhile

MIB = 1 << 20
KEEPS = "import sys; kept = {n: bytes(4000) for n in range(10000)}; print(flush=True); sys.stdin.readline()"
GROWS = """
import sys, threading, time
kept = [bytes(4000) for _ in range(2000)]
def grow():
    for number in range(10_000):
        kept.append(b"x" * 50_000)
        time.sleep(0.0005)
threading.Thread(target=grow, daemon=True).start()
print(flush=True); sys.stdin.readline()
"""
# Ten variables of equal size: none has a quarter of RSS.
EVEN = (
    "import sys\n"
    "for n in range(10): globals()[f'part{n}'] = [bytes(4000) for _ in range(1000)]\n"
    "print(flush=True); sys.stdin.readline()"
)


@pytest.mark.parametrize(
    ("arguments", "exe", "name"),
    [
        (["/usr/bin/python3", "/opt/app/serve.py", "--port", "1"], "/usr/bin/python3.11", "serve.py"),
        (["python3", "-X", "dev", "-m", "http.server"], "/usr/bin/python3.11", "python3 -m http.server"),
        (["python3", "-I", "/opt/serve.py", "secret"], "/usr/bin/python3.11", "serve.py"),
        (["ruby", "-I", "lib", "/opt/serve.rb", "secret"], "/usr/bin/ruby", "serve.rb"),
        (["python3", "-c", "import this"], "/usr/bin/python3.11", "python3"),
        (["/usr/bin/python3", "/usr/bin/gunicorn", "app:app"], "/usr/bin/python3.11", "gunicorn"),
        (["java", "-Xmx64m", "-cp", ".", "Server"], "/usr/lib/jvm/bin/java", "Server"),
        (["java", "-jar", "/srv/app.jar"], "/usr/lib/jvm/bin/java", "java -jar app.jar"),
        (["/usr/bin/redis-server", "*:6379"], "/usr/bin/redis-check-rdb", "redis-server"),
        (["/usr/bin/redis-server *:6379"], "/usr/bin/redis-check-rdb", "redis-server"),
        (["redis-server *:6379"], "/usr/bin/redis-server", "redis-server"),
        (["./redis-server *:6379"], "/opt/redis/redis-server", "redis-server"),
        (["src/redis-server *:6379"], "/opt/redis/src/redis-server", "redis-server"),
        (["src/redis-server *:6379"], "/opt/redis/src/other", "src/redis-server *:6379"),
        (["redis-server *:6379"], "/usr/bin/other", "redis-server *:6379"),
        (["python3 worker 3"], "/usr/bin/python3", "python3 worker 3"),
        (["/opt/My Server/run"], "/opt/My Server/run", "run"),
        (["nginx: worker process"], "/usr/sbin/nginx", "nginx: worker process"),
        (["-bash"], "/bin/bash", "bash"),
        ([], "/usr/bin/thing", "thing"),
        (["", ""], None, ""),
        (["bash", "/dev/fd/63", "7"], "/usr/bin/bash", "bash"),
        (["python3", "/dev/stdin"], "/usr/bin/python3.11", "python3"),
    ],
)
def test_names_of_programs(arguments: list[str], exe: str | None, name: str) -> None:
    """Check that a script is called by its file name, and a program that set its title by that title."""
    assert program_name(arguments, exe) == name


def test_a_title_that_begins_with_a_link(tmp_path: Path) -> None:
    """Check that the words after the name of a link to the program are left out, as redis-server writes them."""
    exe = tmp_path.resolve() / "file"
    exe.touch()
    (exe.parent / "server").symlink_to(exe)
    assert program_name(["server 127.0.0.1:6379"], str(exe)) == "server"
    assert program_name(["serve 127.0.0.1:6379"], str(exe)) == "serve 127.0.0.1:6379"


def made_up(free: int, used: int, **more: object) -> Ledger:
    """Return a ledger of glibc's malloc alone."""
    lines = [
        Line("glibc", None, "glibc malloc", free + used, free + used, 0),
        Line("glibc.used", "glibc", "blocks in use", used, used, 0, state="used"),
        Line("glibc.free", "glibc", "freed, kept by glibc", free, free, 0, state="free"),
    ]
    told = Summary(used, used, free, free, None, [], ["glibc"], None, 0)
    return replace(Ledger(Rss(free + used, 0, "smaps_rollup"), lines, [], None, told), program="p", pid=7, **more)


def test_verdict_tells_use_from_what_is_kept(rng: random.Random) -> None:
    """Check that the verdict states the bytes in use, and the bytes that were freed and that malloc keeps, by its
    name, unless they are negligible."""
    used = rng.randrange(50, 100) * MIB
    style = Style(rss=2 * used)
    said = verdict(made_up(used, used), style)
    assert said.startswith(f"p (pid 7): {style.bytes(2 * used)} resident. {style.bytes(used)} (50.0 %) in use; ")
    assert f"{style.bytes(used)} freed by the program but kept by glibc malloc." in said
    assert "kept by" not in verdict(made_up(used // 100, used), Style(rss=used))


def test_what_is_next_to_nothing_is_one_line(rng: random.Random) -> None:
    """Check that lines below a hundredth of RSS are folded into one, and that the total stays the same."""
    small = [Line(f"l{n}", None, f"line {n}", MIB, rng.randrange(MIB // 2), 0) for n in range(5)]
    whole = made_up(10 * MIB, 990 * MIB)
    answer = replace(whole, ledger=[*whole.ledger, *small], rss=Rss(1000 * MIB, 0, "smaps_rollup"))
    folded, all_lines = (render(answer, Style(exact=True, rss=1000 * MIB), whole) for whole in (False, True))
    assert "5 more below 1 %" in folded and "line 3" not in folded
    assert all(line.name in all_lines for line in answer.ledger)
    total = f"{sum(line.resident or 0 for line in answer.ledger if line.parent is None):,}"
    assert total in folded and total in all_lines


def test_holders_fit_a_terminal(rng: random.Random) -> None:
    """Check that verdict and holders are in the first lines, and that no line is wider than the terminal."""
    rows = [
        MainHolder(MIB, MIB, 0.2, f"app.cache{n}", "dict", 10, "variable", 1, [], [HolderPart("str", 10, MIB)])
        for n in range(MOST)
    ]
    text = render(made_up(MIB, 4 * MIB, holders=rows), Style(width=80, rss=5 * MIB))
    head = text.splitlines()[:24]
    assert head[0].startswith("p (pid 7)") and all(len(line) <= 80 for line in text.splitlines() if "$" not in line)
    assert all(any(row.path in line for line in head) for row in rows)


@pytest.mark.parametrize("form", ["process", "gcore"])
def test_one_holder(form: str, tmp_path: Path) -> None:
    """Check that the largest holder of a process comes first and is a finding, with the next command; the same for a
    core."""
    (python, *_rest) = interpreters()
    with running([python.executable, "-c", KEEPS], tmp_path) as target, heap_of(target.as_form(form)) as heap:
        answer = ledger(heap, budget=BUDGET)
    first = answer.holders[0]
    assert (first.path, first.what, first.count) == ("kept", "dict", 10000)
    assert first.bytes >= 10000 * 4000 and first.parts[0].count >= 10000
    found = [finding for finding in answer.findings if finding.id == "holder"]
    if form == "process":
        assert first.resident is not None and first.share == pytest.approx(first.resident / answer.rss.bytes, abs=1e-3)
        assert [(finding.doubtful, finding.bytes) for finding in found] == [(True, first.resident)]
    else:
        # A core of gdb does not record which pages were resident.
        assert first.share is None
        assert [(finding.doubtful, finding.bytes) for finding in found] == [(True, first.bytes)]
    assert any("snapshot" in line for line in answer.next) == (form == "process")
    assert f"(pid {target.pid})" in verdict(answer, Style())


def test_no_holder_stands_out(tmp_path: Path) -> None:
    """Check that many equal variables are holders, and that none of them is a finding."""
    with running([sys.executable, "-c", EVEN], tmp_path) as target:
        answer = ask("", str(target.pid))
        assert ask("", str(target.pid), "--quick")["holders"] == []
    rows = answer["holders"]
    assert 2 <= len(rows) <= MOST and all(row["path"].startswith("part") for row in rows)
    assert all(100 * row["resident"] >= MIN_PERCENT * answer["rss"]["bytes"] for row in rows)
    assert not [finding for finding in answer["findings"] if finding["id"] == "holder"]
    assert rows == sorted(rows, key=lambda row: -row["bytes"])


def test_more_blocks_than_the_budget_allows(tmp_path: Path) -> None:
    """Check that the page states the cost of the search for holders, and that its command finds them."""
    with running([sys.executable, "-c", KEEPS], tmp_path) as target:
        few = ask("", str(target.pid), "--budget=0.001")
        page = gdbheap(str(target.pid), "--budget=0.001").stdout
        whole = ask("", str(target.pid), "--budget=1")
    # The budget is 2,500,000 blocks a second.
    assert few["not_looked"] > 2500 and few["not_examined"] > 0
    assert "gdbheap needs about 1 s of CPU time" in page and f"  $ gdbheap {target.pid} --budget=1" in page
    assert few["next"][0].startswith(f"gdbheap {target.pid} --budget=1 ")
    assert whole["not_looked"] is None and whole["holders"][0]["path"] == "kept"


def test_growth_while_it_looks(tmp_path: Path) -> None:
    """Check that the page states by how much RSS grew after the stop, and says nothing about a process that did not
    grow."""
    with running([sys.executable, "-c", GROWS], tmp_path) as target:
        # A process that is in a system call for long, as on a loaded host, has no figure for that moment.
        pages = (page for page in (ask("", str(target.pid)) for _ in range(20)) if page["meanwhile"] is not None)
        page = next(page for page in pages if page["meanwhile"]["rss"] > max(MIB, page["rss"]["bytes"] // 100))
    with running([sys.executable, "-c", KEEPS], tmp_path) as target:
        idle, text = ask("", str(target.pid)), gdbheap(str(target.pid)).stdout
    assert page["meanwhile"]["seconds"] > 0
    assert abs(idle["meanwhile"]["rss"]) < MIB and "after this reading" not in text
    rss, grown = page["rss"]["bytes"], page["meanwhile"]["rss"]
    words = render(made_up(MIB, 9 * MIB, rss=Rss(rss, 0, ""), meanwhile=Meanwhile(grown, 0.5)), Style(rss=rss))
    assert (
        " RSS grew by " in words
        and " in the 500 ms after this reading: the largest holder may not be the holder that grows" in words
    )
    assert " RSS shrank by " in render(made_up(MIB, 9 * MIB, meanwhile=Meanwhile(-9 * MIB, 2)), Style(rss=rss))
