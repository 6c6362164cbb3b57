"""``gdbheap watch --prometheus``: the figures are those of the commands, a request does not stop the process, and no
request or failure ends the watch."""

from __future__ import annotations

import ctypes
import json
import os
import random
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.busy import wait_for
from support.programs import PATIENCE, gdbheap
from support.watches import MIB, PTRACE_DETACH, PTRACE_SEIZE, go, grown, rss, swelling, watching

from gdbheap.report.text.style import style_for
from gdbheap.report.words.watch import event_text
from gdbheap.watching.heap_figures import HeapFigures, WatchedHeap
from gdbheap.watching.messages import WatchMessage
from gdbheap.watching.metrics import COUNTER, METRICS, Now
from gdbheap.watching.prometheus import MOST_AT_ONCE, Address, HostNames, address_of, is_loopback

parser = pytest.importorskip("prometheus_client.parser", reason="the extra gdbheap[prometheus] is not installed")
ROOT = Path(__file__).resolve().parent.parent
RARELY, AGE = "--look-every=1h", "gdbheap_watch_scan_age_seconds"
Values = dict[str, dict[tuple[str, ...], float]]


def text_at(url: str) -> str:
    """Return the response of a URL."""
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        assert answer.status == 200 and answer.headers["Content-Type"].startswith("text/plain; version=")
        found: str = answer.read().decode()
        return found


def values_at(url: str) -> Values:
    """Return {metric: {values of its labels except pid and program: value}}, as the client library reads it."""
    found: Values = {}
    for family in parser.text_string_to_metric_families(text_at(url)):
        for sample in family.samples:
            key = tuple(value for name, value in sorted(sample.labels.items()) if name not in ("pid", "program"))
            found.setdefault(sample.name, {})[key] = sample.value
    return found


def looked(url: str) -> Values:
    """Return the values after the first reading."""
    wait_for(lambda: "gdbheap_in_use_bytes" in values_at(url), "no look")
    return values_at(url)


def answer(*words: str) -> Any:
    """Return the answer of another command of gdbheap."""
    done = gdbheap(*words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def quiet() -> Iterator[int]:
    """Yield the process id of an idle program that has holes."""
    command = [sys.executable, str(ROOT / "examples" / "bloated.py"), "--size=60M", "--seconds=600"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and any(line == "ready\n" for line in process.stdout)
        try:
            # The first reading touches a page of the kernel's vdso.
            with watching(str(process.pid), "--prometheus=:0", RARELY) as watch:
                looked(watch.event("serving")["url"])
            yield process.pid
        finally:
            process.kill()


def test_figures(quiet: int) -> None:
    """Check that each figure equals that of gdbheap PID, gdbheap pins PID or the kernel for the same process, and
    that all metrics are there."""
    with watching(str(quiet), "--prometheus=:0", RARELY) as watch:
        serving = watch.event("serving")
        assert serving["url"].startswith("http://127.0.0.1:") and not serving["everybody"]
        found = looked(serving["url"])
        heap, pins = answer(str(quiet), "--quick"), answer("pins", str(quiet), "--min=1")
        summary = heap["summary"]
        alone = {name: rows[()] for name, rows in found.items() if () in rows}
        assert alone["gdbheap_resident_bytes"] == rss(quiet)
        assert alone["gdbheap_look_resident_bytes"] == heap["rss"]["bytes"]
        rollup = dict(line.split(":", 1) for line in Path(f"/proc/{quiet}/smaps_rollup").read_text().splitlines()[1:])
        # Other processes' mappings of the same files change meanwhile.
        assert alone["gdbheap_proportional_bytes"] == pytest.approx(1024 * int(rollup["Pss"].split()[0]), abs=8 * MIB)
        assert alone["gdbheap_swapped_bytes"] == heap["rss"]["swapped"]
        assert alone["gdbheap_trimmable_bytes"] == heap["reclaimable"] == summary["returnable"] > 10 * MIB
        for name in ("used", "used_resident", "free", "free_resident"):
            assert alone[f"gdbheap_{name.replace('used', 'in_use')}_bytes"] == summary[name]
        assert alone["gdbheap_pinned_bytes"] == sum(row["would_free"] for row in pins["sums"]) > 0
        assert found["gdbheap_kept_bytes"] == {(row["id"],): row["bytes"] for row in summary["stays"]}
        lines = {(line["id"],): line["resident"] for line in heap["ledger"]}
        assert found["gdbheap_ledger_resident_bytes"] == lines
        findings: dict[tuple[str, ...], int] = {}
        for row in heap["findings"]:
            findings[(row["id"],)] = findings.get((row["id"],), 0) + row["bytes"]
        assert found["gdbheap_finding_bytes"] == findings != {}
        assert (alone["gdbheap_looks_total"], alone["gdbheap_look_errors_total"]) == (1, 0)
        assert alone["gdbheap_look_partial"] == 0 and alone["gdbheap_watch_processes"] == 1
        assert alone["gdbheap_look_stop_seconds"] == alone["gdbheap_stopped_seconds_total"] > 0
        assert abs(alone["gdbheap_look_timestamp_seconds"] - time.time()) < 10 * PATIENCE
        # A group's metrics need a group with a limit, and its rate; the number of processes is that of a sum.
        names = {metric.name for metric in METRICS}
        optional = {name for name in names if name.startswith("gdbheap_group_")} | {"gdbheap_processes"}
        assert found.keys() | optional == names
        described = {family.name: family for family in parser.text_string_to_metric_families(text_at(serving["url"]))}
        for metric in (metric for metric in METRICS if metric.name in found):
            family = described[metric.name.removesuffix("_total") if metric.kind == COUNTER else metric.name]
            assert (family.type, family.documentation) == (metric.kind, metric.meaning)
            assert all(set(sample.labels) == set(metric.labels) for sample in family.samples)
        watch.end()


def of_process(values: dict[str, Any]) -> dict[str, Any]:
    """Return the series that are not about control groups, whose memory other programs use too, nor about time."""
    return {name: rows for name, rows in values.items() if name != AGE and not name.startswith("gdbheap_group_")}


def test_to_ask_stops_nothing(quiet: int) -> None:
    """Check that requests work as before about a process that cannot be stopped, because it has a tracer; it is
    reported once."""
    libc = ctypes.CDLL(None, use_errno=True)
    rarely, often = [watching(str(quiet), "--prometheus=:0", every) for every in (RARELY, "--look-every=1s")]
    with rarely as watch, often as other:
        url, other_url = watch.event("serving")["url"], other.event("serving")["url"]
        before, _ = of_process(looked(url)), looked(other_url)
        if libc.ptrace(PTRACE_SEIZE, quiet, None, None):
            pytest.skip("this machine allows no ptrace here")
        try:
            for _ in range(20):
                assert of_process(values_at(url)) == before
            missed = other.event("missed")
            while str(os.getpid()) not in missed["errors"][0]:
                # The other watch was reading at that moment.
                missed = other.event("missed")
            assert missed["pid"] == quiet
            assert values_at(other_url)["gdbheap_look_errors_total"][()] >= 1
            for name in ("gdbheap_resident_bytes", "gdbheap_in_use_bytes", "gdbheap_trimmable_bytes"):
                assert values_at(other_url)[name] == before[name]
            other.process.send_signal(signal.SIGTERM)
            (last,) = other.process.communicate(timeout=PATIENCE)[0].splitlines()
            assert json.loads(last)["event"] == "end" and other.process.returncode == 1
        finally:
            os.kill(quiet, signal.SIGSTOP)
            os.waitpid(quiet, 0x40000000)
            assert libc.ptrace(PTRACE_DETACH, quiet, None, None) == 0
            os.kill(quiet, signal.SIGCONT)
        watch.end(signal.SIGINT)
        with pytest.raises(urllib.error.URLError):
            text_at(url)


def test_it_acts_and_goes_on(tmp_path: Path) -> None:
    """Check that the awaited action is done and shown, without ending the watch.

    RSS is the present one, and the readings continue: the program's new figures are shown.
    """
    with swelling(100 * MIB, 60 * MIB) as process:
        bound = rss(process.pid) + 20 * MIB
        line = [str(process.pid), f"--rss={bound}", f"--output={tmp_path}", "--prometheus=:0", "--look-every=100ms"]
        with watching(*line) as watch:
            url = watch.event("serving")["url"]
            before = looked(url)
            go(process)
            assert watch.event("acted")["errors"] == []
            grown(process)
            used = before["gdbheap_in_use_bytes"][()] + 59 * MIB
            wait_for(lambda: values_at(url)["gdbheap_in_use_bytes"][()] > used, "no later look")
            after = values_at(url)
            assert (
                after["gdbheap_resident_bytes"][()] == rss(process.pid) and after["gdbheap_watch_acted_total"][()] == 1
            )
            assert after["gdbheap_stopped_seconds_total"][()] > after["gdbheap_look_stop_seconds"][()]
            process.kill()
            watch.event("ended")
            assert watch.event("end")["why_ended"] == "ended" and watch.process.wait(PATIENCE) == 0
            with pytest.raises(urllib.error.URLError):
                text_at(url)


def test_what_has_ended_has_no_series(tmp_path: Path, rng: random.Random) -> None:
    """Check that an ended process of a watch by name leaves only a count, as its id may be reused."""
    name = f"sleeper{rng.randrange(1 << 20)}"
    program = tmp_path / name
    program.symlink_to("/bin/sleep")
    address = "[::1]:0" if has_ipv6() else ":0"
    with subprocess.Popen([str(program), "1000"]) as process:
        with watching(f"--name=^{name}$", f"--prometheus={address}", RARELY) as watch:
            url = watch.event("serving")["url"]
            watch.event("began")
            found = looked(url)
            assert f'pid="{process.pid}",program="{name}"' in text_at(url)
            assert (found["gdbheap_watch_processes"], found["gdbheap_watch_ended_total"]) == ({(): 1}, {(): 0})
            process.kill()
            watch.event("ended")
            text = text_at(url)
            assert "pid=" not in text and "gdbheap_watch_ended_total 1.0" in text
            assert "gdbheap_watch_processes 0.0" in text
            watch.end()


def has_ipv6() -> bool:
    """Return whether this machine has a loopback address of IPv6."""
    try:
        with socket.socket(socket.AF_INET6) as one:
            one.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_who_says_nothing_keeps_nobody(quiet: int) -> None:
    """Check connections that stay silent, hang up, or send something else: others are answered, and the watch prints
    nothing."""
    with watching(str(quiet), "--prometheus=:0", "--look-every=0") as watch:
        host, port = watch.event("serving")["url"].split("/")[2].split(":")
        silent = [socket.create_connection((host, int(port))) for _ in range(MOST_AT_ONCE // 2)]
        for said in (b"", b"GET", b"\0" * 70000, b"GET / HTTP/1.0\r\n" + b"A: b\r\n" * 300 + b"\r\n"):
            with socket.create_connection((host, int(port))) as rude:
                rude.sendall(said)
        assert "gdbheap_in_use_bytes" not in values_at(f"http://{host}:{port}/metrics")
        more = [socket.create_connection((host, int(port))) for _ in range(3 * MOST_AT_ONCE)]
        # Some of these are closed by the server, and all of them after a while.
        wait_for(lambda: answers(f"http://{host}:{port}/metrics"), "nobody is answered any more")
        for one in silent + more:
            one.close()
        watch.end()


def status_of(port: int, request: bytes) -> int | None:
    """Return the status of the response; None if the connection was closed."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as asking:
        asking.sendall(request)
        try:
            said = asking.recv(100)
        except ConnectionError:
            return None
    return int(said.split()[1]) if said else None


def test_slow_request_ends(quiet: int) -> None:
    """Check that a byte now and then does not keep a connection: the whole request has a time limit, and its size
    too."""
    with watching(str(quiet), "--prometheus=:0", "--look-every=0") as watch:
        port = int(watch.event("serving")["url"].split("/")[2].split(":")[1])
        with socket.create_connection(("127.0.0.1", port)) as slow:
            # Each read is quick: only all of them together take long.
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            wait_for(lambda: is_hung_up(slow), "it may go on for ever")
        endless = b"GET / HTTP/1.1\r\n" + b"".join(b"A%d: %s\r\n" % (row, b"b" * 4000) for row in range(20))
        assert status_of(port, endless) is None
        assert status_of(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200
        watch.end()


def is_hung_up(slow: socket.socket) -> bool:
    """Send one byte more; return whether the connection is closed."""
    slow.settimeout(0.2)
    try:
        slow.sendall(b"A")
        return slow.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_reading_slowly_is_no_traceback(quiet: int) -> None:
    """Check that a client that hangs up before it reads causes no error."""
    with watching(str(quiet), "--prometheus=:0", "--look-every=0") as watch:
        port = int(watch.event("serving")["url"].split("/")[2].split(":")[1])
        for _ in range(5):
            with socket.create_connection(("127.0.0.1", port)) as rude:
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                rude.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert answers(f"http://127.0.0.1:{port}/metrics")
        watch.end()


def test_newest_is_answered(quiet: int) -> None:
    """Check that the maximum number of simultaneous slow clients does not block the next one."""
    with watching(str(quiet), "--prometheus=:0", "--look-every=0") as watch:
        port = int(watch.event("serving")["url"].split("/")[2].split(":")[1])
        slow = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * MOST_AT_ONCE)]
        for one in slow:
            with suppress(OSError):
                one.sendall(b"GET / HTTP/1.1\r\n")
        assert status_of(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") == 200
        for one in slow:
            one.close()
        watch.end()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200), ("LocalHost.:1", 200), ("127.0.0.1", 200), ("127.0.0.1:{port}", 200), ("[::1]:80", 200),
        ("metrics.test", 200), ("other.test:{port}", 200),
        ("rebound.test", 421), ("rebound.test:{port}", 421), ("192.0.2.1", 421), ("localhost.rebound.test", 421),
        ("127.0.0.1.rebound.test", 421), ("localhost:x", 421), ("localhost,rebound.test", 421), ("[localhost", 421),
        ("127.0.0.1\r\nHost: rebound.test", 421), ("", 400), (None, 400),
    ],
)  # fmt: skip
def test_host_is_checked(quiet: int, host: str | None, status: int) -> None:
    """Check that a page that leads a browser here by another host name (DNS rebinding) gets nothing."""
    with serving(quiet) as port:
        line = "" if host is None else f"Host: {host.format(port=port)}\r\n"
        assert status_of(port, f"GET /metrics HTTP/1.1\r\n{line}\r\n".encode()) == status


@contextmanager
def serving(pid: int) -> Iterator[int]:
    """Yield the port of a watch with its own host names."""
    words = "--prometheus=:0", "--prometheus-host=metrics.test,other.test", "--look-every=0"
    with watching(str(pid), *words) as watch:
        yield int(watch.event("serving")["url"].split("/")[2].split(":")[1])
        watch.end()


def test_names() -> None:
    """Check that a server at all addresses accepts any address as its host, but not any name, since a name can be
    redirected."""
    for everywhere in (HostNames("0.0.0.0"), HostNames("::")):
        assert all(map(everywhere.has, ("192.0.2.7:9464", "[2001:db8::1]:9464", "10.244.3.17", "localhost")))
        assert not any(map(everywhere.has, ("rebound.test", "web1", "192.0.2.7.rebound.test:9464")))
    one = HostNames("192.0.2.7", ["web1"])
    assert all(map(one.has, ("192.0.2.7", "[::ffff:192.0.2.7]:1", "web1:9464", "127.0.0.1")))
    assert not any(map(one.has, ("192.0.2.8", "web2", "")))


def answers(url: str) -> bool:
    """Return whether a request to this URL is answered."""
    try:
        return bool(values_at(url))
    except OSError:
        return False


def test_port_in_use(quiet: int) -> None:
    """Check one line with status 2, and that the process is not watched."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = gdbheap("watch", str(quiet), f"--prometheus=:{port}")
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == f"gdbheap: --prometheus: 127.0.0.1:{port}: cannot listen at this address: Address already in use\n"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--prometheus=9100"], "not an address"),
        (["--prometheus=192.0.2.1:0"], "cannot listen at this address"),
        (["--prometheus=no.such.host.invalid:0"], "cannot listen at this address"),
        (["--prometheus=" + "a" * 300 + ":0"], "cannot listen at this address"),
        (["--rss=1G", "--look-every=1m"], "--look-every needs --prometheus"),
        (["--rss=1G", "--prometheus-host=a"], "--prometheus-host needs --prometheus"),
        (["--prometheus=:0", "--prometheus-host=a:1"], "is not a host name"),
        (["--prometheus=:0", "--look-every=x"], "--look-every"),
        (["--prometheus=:0", "--on-memory-error"], "--look-every=0"),
    ],
)
def test_wrong_usage(quiet: int, words: list[str], said: str) -> None:
    """Check that a wrong usage of --prometheus gives one line before the watch begins."""
    done = gdbheap("watch", str(quiet), *words)
    assert (done.returncode, done.stdout) == (2, "") and said in done.stderr and done.stderr.count("\n") == 1


def test_without_the_client_library(quiet: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that one line says what to install, and that other watches work without it."""
    (tmp_path / "prometheus_client.py").write_text("raise ImportError('hidden')\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = gdbheap("watch", str(quiet), "--prometheus=:0")
    assert (done.returncode, done.stdout) == (5, "") and done.stderr.count("\n") == 1
    assert "pip install 'gdbheap[prometheus]'" in done.stderr
    done = gdbheap("watch", str(quiet), "--rss=1M", f"--output={tmp_path}")
    assert done.returncode == 0


def test_killed_it_leaves_the_port(quiet: int) -> None:
    """Check that a child that reads does not keep the port: the next watch gets the same port at once."""
    with watching(str(quiet), "--prometheus=:0", "--look-every=1ms") as watch:
        port = watch.event("serving")["url"].split("/")[2].split(":")[1]
        watch.process.kill()
        watch.process.wait(PATIENCE)
        with watching(str(quiet), f"--prometheus=:{port}", RARELY) as again:
            looked(again.event("serving")["url"])
            again.end()


@pytest.mark.parametrize(
    ("text", "address", "alone"),
    [
        (":9100", ("127.0.0.1", 9100), True),
        ("127.8.9.1:0", ("127.8.9.1", 0), True),
        ("[::1]:1", ("::1", 1), True),
        ("0.0.0.0:9100", ("0.0.0.0", 9100), False),
        ("[::]:9100", ("::", 9100), False),
        ("[fe80::1%lo]:65535", ("fe80::1%lo", 65535), False),
    ],
)
def test_addresses(text: str, address: tuple[str, int], alone: bool) -> None:
    """Check that only loopback addresses are for this machine alone, and that others cause a warning about the
    published data."""
    assert address_of(text) == Address(*address) and is_loopback(address[0]) is alone
    line = event_text(
        WatchMessage("serving", 0.0, url="http://x/metrics", everybody=not alone), style_for(None, False, None)
    )
    assert ("everybody who can reach this address can read" in line) is not alone


@pytest.mark.parametrize("text", ["", ":", "9100", ":65536", ":-1", ":+1", ":1_0", ":١", "::1:9100", "[::1]", "[::1:1"])
def test_no_addresses(text: str) -> None:
    """Check that each is refused with the right form."""
    with pytest.raises(ValueError, match=r"not an address: .*\bsuch as (:9100|\[::1\])"):
        address_of(text)


def test_unknown_is_left_out() -> None:
    """Check that an unknown figure has no value, and that before the first reading there are only RSS and counts."""
    rows = {metric.name: list(metric.rows(Now([(WatchedHeap(7, "x"), 5)]))) for metric in METRICS}
    assert rows["gdbheap_resident_bytes"] == [(("7", "x"), 5.0)] and rows["gdbheap_looks_total"] == [(("7", "x"), 0.0)]
    assert rows["gdbheap_in_use_bytes"] == rows["gdbheap_finding_bytes"] == rows["gdbheap_proportional_bytes"] == []
    found = WatchedHeap(7, "x", HeapFigures(resident=1, used=0))
    rows = {metric.name: list(metric.rows(Now([(found, 5)]))) for metric in METRICS}
    assert rows["gdbheap_in_use_bytes"] == [(("7", "x"), 0.0)] and rows["gdbheap_trimmable_bytes"] == []


# Names of metrics in PromQL, and Grafana's placeholders.
NAMED = re.compile(r"\bgdbheap_[a-z_]+")
VARIABLES = {"$__rate_interval": "5m", "$pid": ".*", "$program": ".*", "$job": ".*", "$instance": ".*"}


def expressions() -> list[str]:
    """Return the expressions of the dashboard's panels and variables, and of the rules."""
    board = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8"))
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = (ROOT / "deploy" / "prometheus-rules.yaml").read_text(encoding="utf-8")
    found += [re.sub(r"\s+", " ", text) for text in re.findall(r"expr: (?:>-\n)?(.+?)\n +(?:for|labels):", rules, re.S)]
    for name, value in VARIABLES.items():
        found = [text.replace(name, value) for text in found]
    return found


def test_dashboard_and_rules_ask_for_what_there_is() -> None:
    """Check that each expression is PromQL and names published metrics, and that the dashboard has all important
    ones."""
    names = {metric.name for metric in METRICS}
    named = {name for text in expressions() for name in NAMED.findall(text)}
    assert named <= names and len(expressions()) > 15
    board = (ROOT / "deploy" / "grafana-dashboard.json").read_text(encoding="utf-8")
    assert set(NAMED.findall(board)) <= names
    used = {name for pair in re.findall(r"(\w+)[=!]~|by \((\w+)\)", " ".join(expressions())) for name in pair if name}
    assert used <= {label for metric in METRICS for label in metric.labels} | {"job", "instance"}
    promql = pytest.importorskip("promql_parser", reason="no PromQL parser is installed")
    for text in expressions():
        promql.parse(text)


def test_rules_by_promtool() -> None:
    """Check that Prometheus' own tool accepts the rules."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    done = subprocess.run(
        [promtool, "check", "rules", str(ROOT / "deploy" / "prometheus-rules.yaml")], capture_output=True
    )
    assert done.returncode == 0, done.stdout


# (minutes, the alerts that fire then on a host with these series, one value a minute).
ALERTS = {
    "one kill, counted by a group, by the group above it and by the watch": (
        4, ["ProcessesKilledForMemory"],
        {"watch_killed_total": "0 0 1x9", 'group_kills_total{group="/a"}': "0 0 1x9",
         'group_kills_total{group="/a/b"}': "0 0 1x9"},
    ),
    "no kill, and a start that takes half of the limit at once": (
        2, [],
        {"watch_killed_total": "7x9", 'group_kills_total{group="/a"}': "7x9", 'group_limit_bytes{group="/a"}': "100x9",
         'group_mark_bytes{group="/a"}': "90x9", 'group_needed_bytes{group="/a"}': "5 5 55 5x9",
         'group_seconds_to_limit{group="/a"}': "_ _ 2 _x9"},
    ),
    "steady growth to the limit": (
        4, ["GroupIsFullSoon"],
        {'group_limit_bytes{group="/a"}': "100x9", 'group_mark_bytes{group="/a"}': "90x9",
         'group_needed_bytes{group="/a"}': "0+20x9", 'group_seconds_to_limit{group="/a"}': "240-48x4"},
    ),
    "near the limit for a while": (
        5, ["GroupNearItsLimit"],
        {'group_limit_bytes{group="/a"}': "100x9", 'group_mark_bytes{group="/a"}': "90x9",
         'group_needed_bytes{group="/a"}': "91x9"},
    ),
    "nothing to watch": (6, ["NoProcessIsWatched"], {"watch_processes": "3 0x9"}),
    "a watch that searches no more": (2, ["WatchSearchesNoMore"], {"watch_scan_age_seconds": "0+60x9"}),
    "a watch that searches": (9, [], {"watch_scan_age_seconds": "1x9", "watch_processes": "0 3x9"}),
    "old figures": (70, ["HeapFiguresAreOld"], {'look_timestamp_seconds{program="a",pid="1"}': "0x90"}),
}  # fmt: skip


def test_which_alerts_fire(tmp_path: Path) -> None:
    """Check with Prometheus' own tool which alerts fire: one for each danger, and none for what is harmless."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool")
    names = re.findall(r"alert: (\w+)", (ROOT / "deploy" / "prometheus-rules.yaml").read_text(encoding="utf-8"))
    asked = [
        {"interval": "1m", "name": name, "input_series": [{"series": f"gdbheap_{key}", "values": values}
         for key, values in series.items()],
         "promql_expr_test": [
            {"expr": f'count by (alertname) (ALERTS{{alertname="{alert}",alertstate="firing"}})',
             "eval_time": f"{minutes}m",
             "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1}] if alert in fired else []}
            for alert in names
        ]}
        for name, (minutes, fired, series) in ALERTS.items()
    ]  # fmt: skip
    rules = {
        "rule_files": [str(ROOT / "deploy" / "prometheus-rules.yaml")],
        "evaluation_interval": "1m",
        "tests": asked,
    }
    (tmp_path / "tests.yaml").write_text(json.dumps(rules))
    done = subprocess.run([promtool, "test", "rules", str(tmp_path / "tests.yaml")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_page_names_every_metric() -> None:
    """Check that docs/watching.md lists them all, with their meanings, and no others."""
    text = (ROOT / "docs" / "watching.md").read_text(encoding="utf-8")
    assert set(NAMED.findall(text)) == {metric.name for metric in METRICS}
    assert [metric.name for metric in METRICS if metric.meaning.rstrip(".") not in text] == []
