"""``heap owners`` of programs without Python: one row for a holder, with all of its blocks and a familiar name."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.library import heap_of
from support.programs import (
    GCORE,
    PROCESS,
    RELEASES,
    SOURCES,
    ask,
    build,
    c_program,
    gdbheap,
    interpreter_of_release,
    running,
)

from gdbheap.contents.java.heap_place import java_heap
from gdbheap.targets.start_environment import started_as

KEYS = {"path", "bytes", "resident", "share", "blocks", "what"}


def compiled(name: str, folder: Path) -> Path:
    """Return a program in C++, compiled; skip the test without a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    executable = folder / name
    command = [compiler, "-std=c++14", "-O1", "-pthread", str(SOURCES / f"{name}.cc"), "-o", str(executable)]
    subprocess.run(command, check=True)
    return executable


def test_one_row_a_holder(rng: random.Random, tmp_path: Path) -> None:
    """Check that a holder of blocks of a thousand sizes is one row, with the program's blocks and bytes."""
    command = [str(compiled("holders_of_cxx", tmp_path)), str(rng.getrandbits(30))]
    with running(command, tmp_path) as target:
        told = {name: (int(count), int(size)) for name, count, size in map(str.split, target.stderr.splitlines())}
        answer = ask("owners", target.as_form(rng.choice((PROCESS, GCORE))), "--top=all")
        rows = answer["rows"]
        assert all(row.keys() >= KEYS for row in rows)
        assert sum(row["bytes"] for row in rows) == answer["total"]["bytes"]
        assert sum(row["blocks"] for row in rows) == answer["total"]["blocks"]
        words = {**{name: name for name in told}, "mapped": "[anonymous] at"}
        for name, (count, size) in told.items():
            (row,) = [row for row in rows if words[name] in row["path"] and row["bytes"] >= size // 2]
            assert count <= row["blocks"] <= count + 2 and size <= row["bytes"] <= size + 4096, (name, row)
            assert row["share"] is None or 0 < row["share"] <= 1
        text = gdbheap("owners", str(target.pid), "--top=4").stdout
    assert "holder" in text and "largest parts" in text and "(more)" in text


def test_a_program_by_its_link(tmp_path: Path) -> None:
    """Check that a program has the name by which it was started, and a script not its interpreter's."""
    link = tmp_path / "server"
    link.symlink_to(c_program("hangs")[0])
    with running([str(link), "3", "0"], tmp_path) as target:
        rows = ask("owners", str(target.pid))["rows"]
        assert rows[0]["path"].startswith("'sessions' in server")
        with heap_of(target.as_form(GCORE)) as heap:
            assert started_as(heap.target) == "server"
    script = tmp_path / "script"
    script.write_text(f"#!{c_program('hangs')[0]} 3\n")
    script.chmod(0o755)
    with running([str(script), "0"], tmp_path) as target:
        rows = ask("owners", str(target.pid))["rows"]
    assert rows[0]["path"].startswith("'sessions' in hangs")


@pytest.mark.parametrize("kind", ["symbolic", "hard", "folder"])
def test_frames_have_the_name_of_the_link(kind: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that frames without symbols are named by the link that started the program: of a stopped process, of a
    core, of followed calls and of a trace."""
    program, name = build("hangs", "-s"), f"server-{rng.randrange(1 << 30)}"
    link = tmp_path / name
    if kind == "hard":
        shutil.copy(program, tmp_path / "file")
        os.link(tmp_path / "file", link)
    elif kind == "symbolic":
        link.symlink_to(program)
    else:
        (tmp_path / "bin").symlink_to(program.parent)
        link, name = tmp_path / "bin" / program.name, program.name
    with running([str(link), "3", "0"], tmp_path) as target:
        for form in (target.as_form(PROCESS), target.as_form(GCORE)):
            frames = [frame for row in ask("threads", form, "--c-frames")["rows"] for frame in row["running"]]
            assert any(frame["function"].startswith(f"{name}+0x") for frame in frames), frames
            assert not any(frame["function"].startswith(f"{program.name}+0x") for frame in frames) or kind == "folder"
    command = [str(link), str(rng.randrange(1000)), "0"]
    done = gdbheap("growth", "--json", "--top=all", "--", *command, stdin=subprocess.DEVNULL)
    log = str(tmp_path / "calls.log")
    assert gdbheap("trace", "-o", log, "--stacks=1", "--", *command, stdin=subprocess.DEVNULL).returncode == 0
    for stacks in (json.loads(done.stdout)["sites"], ask("stacks", log, "--top=all")["rows"]):
        own = [frame for stack in stacks for frame in stack["frames"] if frame["name"].startswith(f"{name}+0x")]
        assert own and {Path(frame["file"]).name for frame in own} == {name}, stacks[:2]


KEPT = """
import java.util.*;
import java.util.zip.*;

public class Kept {
    public static void main(String[] a) throws Exception {
        List<Object> kept = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            Deflater one = new Deflater();
            one.setInput(new byte[3000]);
            one.finish();
            one.deflate(new byte[4000]);
            kept.add(one);
        }
        System.out.println("READY");
        System.in.read();
        kept.clear();
    }
}
"""
# zlib's deflateInit() with the defaults: a window, two tables and a buffer of 64 KiB each.
OF_A_DEFLATER = 4 << 16


def test_what_java_objects_hold(tmp_path: Path) -> None:
    """Check that blocks of C that hang on objects of the Java heap are one row, and that the heap is where the JVM's
    own command reports it."""
    java, compiler, command = map(shutil.which, ("java", "javac", "jcmd"))
    if java is None or compiler is None:
        pytest.skip("no java, or no javac")
    (tmp_path / "Kept.java").write_text(KEPT)
    subprocess.run([compiler, "-J-Xmx128m", "-d", str(tmp_path), str(tmp_path / "Kept.java")], check=True)
    started = [java, "-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", str(tmp_path), "Kept"]
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        try:
            pid = str(program.pid)
            assert program.stdout is not None and program.stdout.readline()
            rows = ask("owners", pid, "--top=all")["rows"]
            with heap_of(pid) as heap:
                ((start, end),) = java_heap(heap.target)
            if command is not None:
                asked = subprocess.run([command, pid, "GC.heap_info"], capture_output=True, text=True, check=False)
                places = [int(found, 16) for found in re.findall(r"0x([0-9a-f]+)", asked.stdout)]
                assert all(start <= place <= end for place in places[:3])
        finally:
            program.kill()
    assert "Java heap" in rows[0]["path"] and rows[0]["bytes"] >= 60 * OF_A_DEFLATER and rows[0]["blocks"] >= 60 * 4
    assert all(row["share"] <= 1 for row in rows) and sum(row["share"] for row in rows) <= 1


# Two lists of one object that is reached through others; the second has about an eighth of the first one's bytes.
BESIDE = """
import os, sys
class Holder(object): pass
class Inner(object): pass
holder = Holder()
holder.inner = Inner()
holder.inner.most = [os.urandom(16000) for _ in range(int(sys.argv[1]))]
holder.inner.rest = [os.urandom(16000) for _ in range(int(sys.argv[1]) // 8)]
sys.stdin.read()
"""


@pytest.mark.parametrize("release", RELEASES)
def test_two_lists_of_one_object(release: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each list has its own row with its own bytes, although the path to the larger one passes the object
    that has both."""
    path, count = tmp_path / "beside.py", rng.randrange(1200, 1600)
    path.write_text(BESIDE)
    with running([interpreter_of_release(release).executable, str(path), str(count)], tmp_path) as target:
        rows = ask("owners", str(target.pid), "--top=all")["rows"]
    for name, items in (("most", count), ("rest", count // 8)):
        (row,) = [row for row in rows if str(row["path"]).endswith(f"holder.inner.{name}")]
        (part,) = [part for part in row["parts"] if part["what"] in ("bytes", "str")]
        # In Python 2 the names of the attributes are of the same type.
        assert 0 <= part["count"] - items < 5 and 16000 * items <= row["bytes"] <= 16200 * items, row
