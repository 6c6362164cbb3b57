"""Runtimes and servers are recognised and named: real programs, each with its own advice."""

from __future__ import annotations

import os
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from support import kernel
from support.programs import SOURCES, ask, gdbheap, interpreter_of, running
from support.runtimes import held, needed, renamed

from gdbheap.allocators.runtimes import KINDS, kinds

# Each keeps MANY texts of 64 bytes or more until it is ended, with the means of its own runtime.
MANY = 200_000
PROGRAMS = {
    "v8": ("node", ["-e", f"k=[];for(i=0;i<{MANY};i++)k.push([i,'x'+i]);require('fs').readSync(0,Buffer.alloc(1))"]),
    "php": ("php", ["-r", f"$k=[];for($i=0;$i<{MANY};$i++)$k[]=str_repeat('x',100).$i;fgets(STDIN);"]),
    "ruby": ("ruby", ["-e", f"$k=(0...{5 * MANY}).map{{|i|[i]}};STDIN.gets"]),
    "pypy": ("pypy3", ["-c", f"import sys;k=[('x%d'%i)*8 for i in range({MANY})];sys.stdin.readline()"]),
    "perl": ("perl", ["-e", f"$|=1;our @k=map {{['x'x50,$_]}} 1..{MANY};<STDIN>"]),
    "beam": ("erl", ["-noinput", "-eval", f"K=[integer_to_list(I)||I<-lists:seq(1,{MANY})],receive _->length(K) end."]),
}  # fmt: skip


def large(pid: int) -> bool:
    """Return whether the process has more memory than at its start."""
    return kernel.rollup(pid)[0] > 35 << 20


def finding(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the finding of that id; there must be exactly one."""
    (found,) = (row for row in answer["findings"] if row["id"] == name)
    return dict(found)


def check_books(answer: dict[str, Any]) -> None:
    """Check that the ledger adds up to the kernel's figure at that time (a collector may run later), that no two
    findings exceed all memory, and that none has empty advice."""
    rss = answer["rss"]["bytes"]
    assert sum(line["resident"] for line in answer["ledger"] if line["parent"] is None) == rss
    assert sum(row["bytes"] for row in answer["findings"]) <= rss
    assert all(row["advice"] and "whoever mapped" not in row["advice"] for row in answer["findings"])
    assert not {"mapped-memory", "other-held"} & {row["id"] for row in answer["findings"]}


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_recognised(name: str) -> None:
    """Check that a runtime is recognised by its libraries, with one finding, and a line in the ledger with its name
    if it maps its memory."""
    program, arguments = PROGRAMS[name]
    with held([needed(program), *arguments], large) as pid:
        answer, facts = ask("", str(pid)), ask("info", str(pid))["rows"]
        check_books(answer)
        python = gdbheap("pyobjects", str(pid))
    (kind,) = (kind for kind in kinds() if kind.id == name)
    assert [fact["value"] for fact in facts if fact["fact"] == f"runtime {name}"] == [kind.name]
    assert kind.name in finding(answer, f"runtime-{name}")["text"]
    assert python.returncode == 5
    assert ("PyPy, not supported" in python.stderr) == (name == "pypy")
    titles = [line["name"] for line in answer["ledger"] if line["id"] == f"other.{name}"]
    assert titles == ([] if name in ("pypy", "perl") else [f"{kind.name} and other anonymous memory"])


def test_variables_of_perl_are_one_holder() -> None:
    """Check that words in the interpreter's own data that lead to malloc's blocks do not become names of the
    program."""
    command = [needed("perl"), *PROGRAMS["perl"][1]]
    with held(command, lambda pid: kernel.rollup(pid)[0] > 100 * MANY) as pid:
        holders = ask("", str(pid))["holders"]
    assert holders[0]["path"] == "variables of Perl, whose names are not read" and holders[0]["share"] > 0.8
    assert not any("PL_" in holder["path"] for holder in holders)


def test_jvm(tmp_path: Path) -> None:
    """Check that a JVM's heap, at the address that jcmd reports, is in the line with its name, and that the commands
    can be pasted."""
    java, jcmd = needed("java"), needed("jcmd")
    source = tmp_path / "Hold.java"
    source.write_text(
        "public class Hold { public static void main(String[] a) throws Exception { byte[][] k = new byte[40][];"
        " for (int i = 0; i < 40; i++) { k[i] = new byte[1 << 20]; java.util.Arrays.fill(k[i], (byte) 1); }"
        " System.in.read(); System.out.println(k.length); } }"
    )
    with held([java, "-Xmx128m", "-XX:+UseSerialGC", str(source)], large) as pid:
        answer = ask("", str(pid))
        check_books(answer)
        said = subprocess.run([jcmd, str(pid), "GC.heap_info"], capture_output=True, text=True).stdout
        start = re.search(r"0x([0-9a-f]{8,})", said)
        assert start is not None, said
        owner = ask("at", str(pid), f"0x{start[1]}")["mapping"]["whose"]
    found = finding(answer, "runtime-jvm")
    assert found["bytes"] > 40 << 20 and owner == "the JVM and other anonymous memory"
    assert found["commands"] == [f"jcmd {pid} GC.heap_info", f"jcmd {pid} VM.native_memory summary"]


def test_redis(tmp_path: Path) -> None:
    """Check a redis-server that uses jemalloc: the bytes in use agree with its own figures, and none of its memory is
    called unknown.
    """
    server, client = needed("redis-server"), needed("redis-cli")
    socket = str(tmp_path / "socket")
    ask_server = [client, "-s", socket]
    with held([server, "--port", "0", "--unixsocket", socket, "--save", ""], lambda pid: os.path.exists(socket)) as pid:
        fill = "for i=1,60000 do redis.call('set','k'..i,string.rep('x',300)) end"
        subprocess.run([*ask_server, "eval", fill, "0"], check=True, stdout=subprocess.DEVNULL)
        said = subprocess.run([*ask_server, "INFO", "memory"], check=True, capture_output=True, text=True).stdout
        answer = ask("", str(pid))
    allocator = re.search(r"mem_allocator:(\S+)", said)
    assert allocator is not None
    if not allocator[1].startswith("jemalloc"):
        pytest.skip(f"this redis-server is on {allocator[1]}")
    used = int(re.findall(r"used_memory:(\d+)", said)[0])
    # Its blocks are walked: the bytes in use, and jemalloc's memory, are lines of the ledger.
    size = {line["id"]: line["virtual"] for line in answer["ledger"]}
    active = int(re.findall(r"allocator_active:(\d+)", said)[0])
    assert 0.99 * used <= size["jemalloc.used"] <= active
    assert "other-allocator" not in [row["id"] for row in answer["findings"]]
    unknown = answer["summary"]["not_walked"]
    assert unknown is None or "Redis" not in unknown["name"]


@pytest.mark.parametrize("flags", [[], ["-ldflags=-s -w"]], ids=["plain", "stripped"])
def test_go(flags: list[str], rng: random.Random, tmp_path: Path) -> None:
    """Check a static, stripped and renamed program by its note; nearly all of Go's memory from the system is in its
    line."""
    program = tmp_path / "renamed"
    environment = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": ""}
    command = [needed("go"), "build", *flags, "-o", str(program), str(SOURCES / "goroutines.go")]
    subprocess.run(command, check=True, env=environment)
    with running([str(program), str(rng.getrandbits(30))], tmp_path) as target:
        answer, heap = ask("", str(target.pid)), int(target.stderr.split()[5])
        check_books(answer)
    found = finding(answer, "runtime-go")
    (line,) = (line for line in answer["ledger"] if line["id"] == "other.go")
    assert line["resident"] == found["bytes"] and heap * 0.9 <= found["bytes"]


@pytest.mark.parametrize(("name", "id"), [("node", "v8"), ("deno", "v8"), ("libnode.so.108", "v8"), ("bun", "bun")])
def test_a_signal_is_advised_for_node_alone(name: str, id: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that 'node inspect -p', which sends SIGUSR1 and ends most programs, is offered only if the program is
    Node.js."""
    with running(renamed(name, rng, tmp_path), tmp_path) as target:
        found = finding(ask("", str(target.pid)), f"runtime-{id}")
    assert found["commands"] == ([f"node inspect -p {target.pid}"] if name == "node" else [])
    assert ("SIGUSR1" in found["advice"]) == (id == "v8") and ("V8" in found["text"]) == (id == "v8")


def test_valkey_is_not_redis() -> None:
    """Check that each has its own name and its own client."""
    for name in ("redis", "valkey"):
        (kind,) = (kind for kind in kinds() if kind.has_file(f"/usr/bin/{name}-server"))
        assert kind.name.lower() == name and all(line.startswith(f"{name}-cli ") for line in kind.commands)


# PR_SET_VMA, PR_SET_VMA_ANON_NAME.
NAMED = """
import ctypes, mmap, sys
memory = mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.write(b"x" * (32 << 20))
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
ctypes.CDLL(None).prctl(0x53564D41, 0, ctypes.c_ulong(address), ctypes.c_ulong(32 << 20), b" Go: heap"[1:])
sys.stdin.readline()
"""


def test_memory_that_the_kernel_names(tmp_path: Path) -> None:
    """Check that exactly the mappings that the kernel names for a runtime count as the runtime's."""
    with running([interpreter_of("stripped"), "-I", "-c", NAMED], tmp_path) as target:
        if "[anon:Go: heap]" not in Path(f"/proc/{target.pid}/maps").read_text():
            pytest.skip("this kernel has no names for mappings (CONFIG_ANON_VMA_NAME)")
        answer, text = ask("", str(target.pid)), gdbheap("", str(target.pid)).stdout
    assert finding(answer, "runtime-go")["bytes"] == 32 << 20
    assert "without a file" not in text and "other anonymous memory" not in text
    known = {"id": "other.go", "name": "Go", "bytes": 32 << 20, "is_certain": True}
    assert answer["summary"]["not_walked"] == known
    assert "gdbheap cannot list the blocks of Go. It is unknown how much of 32.0 MiB of its own memory is free." in text


def test_the_table() -> None:
    """Check that each row has a way to be found, the place of its memory, and advice."""
    for kind in kinds():
        assert kind.memory in KINDS and kind.advice
        assert kind.files or kind.symbols or kind.notes or kind.mappings
        lines = [line.replace("{pid}", "").replace("{listener}", "") for line in kind.commands]
        assert all("{" not in line or "'{" in line for line in lines)
        assert all(re.compile(pattern) for pattern in kind.files)
    assert len({kind.id for kind in kinds()}) == len(kinds())
