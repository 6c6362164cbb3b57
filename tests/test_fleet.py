"""A folder of partitions: one table of many processes, whose answers are the planted ones; gdbheap accepts the
commands of deploy/. ``fleet.py`` asks the same of many more processes, also with Spark."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.fleets import QUERIES, ROOT, Fleet, asked, check, fleet
from support.installed import python_with
from support.ports import free_port
from support.programs import PATIENCE, gdbheap

from gdbheap.commands.surface.parser import parse
from gdbheap.commands.surface.registry import COMMANDS
from gdbheap.export.partitions import destination_of, parse_partition, values_of_parts

DEPLOY = ROOT / "deploy"
EXAMPLES = ROOT / "docs" / "examples"
UNITS = (".service", ".timer")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Yield two hosts with three workers each."""
    pytest.importorskip("duckdb", reason="the extra gdbheap[sql] is not installed")
    with fleet(tmp_path_factory.mktemp("fleet"), 2, 3) as found:
        yield found


def test_ten_questions(small: Fleet) -> None:
    """Check that the answers are the planted ones."""
    answers = {title: asked(small.folder, title) for title in QUERIES}
    assert len(answers) == 10
    check(small, answers)


def test_again_and_left_out(small: Fleet, tmp_path: Path) -> None:
    """Check that a second export replaces the first, that ended processes are not mentioned, and that hidden folders
    are removed."""
    folder = tmp_path / "heaps"
    pid = str(small.workers["web0"][0].pid)
    keys = "--partition=host=x/../y,pid"
    for _ in range(2):
        done = gdbheap("export", pid, "999999999", "-o", str(folder), keys, "--tables=types", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["look_count"] == 1, done.stderr
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert files == [f"{name}/host=x%2F..%2Fy/pid={pid}/data.parquet" for name in ("snapshots", "types")]
    assert sorted(os.listdir(folder)) == ["snapshots", "types"]
    done = gdbheap("sql", str(folder), "SELECT DISTINCT host, pid FROM types", "--csv")
    assert done.stdout.split() == ["host,pid", f"x/../y,{pid}"]
    done = gdbheap("export", "999999998", "999999999", "-o", str(folder), keys)
    assert (done.returncode, done.stderr.count("\n")) == (4, 1)
    done = gdbheap("export", pid, "1" if os.getuid() else str(os.getpid()), "-o", str(folder), keys, "--format=csv")
    assert done.returncode in (0, 1)


def test_names_of_folders() -> None:
    """Check that the values of folder names come from the snapshot or the options, and cannot lead to another
    folder."""
    identity = {"time": 1777900000.5, "host": "a/b", "pid": 5, "exe": "/usr/bin/..", "container": None}
    parts = parse_partition("host,pid,day,time,program,container,release=1 2=3")
    values = values_of_parts(parts, identity)
    assert values == {
        "host": "a/b", "pid": "5", "day": "2026-05-04", "time": "1777900000", "program": "..",
        "container": "__HIVE_DEFAULT_PARTITION__", "release": "1 2=3",
    }  # fmt: skip
    where = destination_of("types", values, "types.parquet").split("/")
    assert len(where) == len(values) + 2 and ".." not in where and where[-1] == "data.parquet"
    for wrong in ("", "host,host", "Host=a", "a b=c", "rack", "host=", "=a", "../x=1"):
        with pytest.raises(ValueError):
            parse_partition(wrong)


def test_bucket(small: Fleet, tmp_path: Path) -> None:
    """Check that a bucket of S3 gets the same files as a folder."""
    pytest.importorskip("fsspec", reason="the extra gdbheap[remote] is not installed")
    python = os.environ.get("GDBHEAP_S3_PYTHON") or python_with("moto", "s3fs", "boto3", "flask")
    packages = subprocess.run(
        [python, "-c", "import s3fs, os; print(os.path.dirname(os.path.dirname(s3fs.__file__)))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "y", "AWS_ENDPOINT_URL": url,
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true", "PYTHONPATH": packages,
    }  # fmt: skip
    command = [python, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(url, server)
        urllib.request.urlopen(urllib.request.Request(f"{url}/memory", method="PUT"), timeout=PATIENCE).close()
        pid = str(small.workers["web1"][0].pid)
        words = [pid, "--partition=host=web1,pid", "--tables=types", "--json"]
        with pytest.MonkeyPatch.context() as environment:
            for name, value in settings.items():
                environment.setenv(name, value)
            done = gdbheap("export", *words, "-o", "s3://memory/heaps")
            missing = gdbheap("export", *words, "-o", "s3://no-such-bucket-is-here/heaps")
        assert done.returncode == 0, done.stderr
        assert (missing.returncode, missing.stderr.count("\n")) == (2, 1), missing.stderr
        assert gdbheap("export", *words, "-o", str(tmp_path / "heaps")).returncode == 0
        fetch = (
            "import boto3, hashlib, json; bucket = boto3.resource('s3').Bucket('memory'); print(json.dumps({one.key: "
            "hashlib.sha256(one.get()['Body'].read()).hexdigest() for one in bucket.objects.all()}))"
        )
        environment_of_boto = {**os.environ, **settings, "PYTHONPATH": ""}
        fetched = subprocess.run([python, "-c", fetch], capture_output=True, text=True, env=environment_of_boto)
        assert fetched.returncode == 0, fetched.stderr
        stored = json.loads(fetched.stdout)
        assert stored.keys() == {f"heaps/{table['file']}" for table in json.loads(done.stdout)["rows"]}
        types = f"types/host=web1/pid={pid}/data.parquet"
        assert stored[f"heaps/{types}"] == hashlib.sha256((tmp_path / "heaps" / types).read_bytes()).hexdigest()
    finally:
        server.kill()
        server.wait()


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert server.poll() is None
        try:
            urllib.request.urlopen(url, timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("moto's server does not answer")


def test_deploy_is_understood() -> None:
    """Check that gdbheap accepts every command of deploy/, and that each writes into partitions."""
    commands = re.findall(r"gdbheap (export [^\n;>&]*)", "\n".join(path.read_text() for path in DEPLOY.iterdir()))
    assert len(commands) == 4
    for command in commands:
        # The user need not exist here.
        words = shlex.split(re.sub(r"\$\{?[A-Z]+\}?", "x", re.sub(r"\$\{?OWNER\}?|www-data", "0", command)))
        options, _extra, left = parse(COMMANDS[words[0]], words[1:])
        assert not left and options.output and options.name is not None and options.user == 0
        assert [part.name for part in options.partition] == ["host", "release", "day", "pid"]
    names = "fleet.md", "watching.md", "recording.md", "months.md"
    pages = "".join((ROOT / "docs" / name).read_text() for name in names)
    assert {path.name for path in DEPLOY.iterdir()} == set(re.findall(r"\.\./deploy/([\w.-]+)", pages))


def test_examples_are_understood() -> None:
    """Check that gdbheap accepts every command of docs/examples, and that each watches something."""
    unit = (EXAMPLES / "gdbheap-watch@.service").read_text()
    (line,) = re.findall(r"gdbheap (watch .*)", unit)
    (listed,) = re.findall(r"command:\n((?: +- [^\n]+\n)+)", (EXAMPLES / "sidecar.yaml").read_text())
    sidecar = re.findall(r"- (.+)", listed)
    assert sidecar[0] == "gdbheap"
    for words in (shlex.split(line.replace("%i", "x")), sidecar[1:]):
        options, _extra, left = parse(COMMANDS[words[0]], words[1:])
        assert not left and options.at_oom and (options.name is not None or options.cgroup is not None)


def units() -> list[str]:
    """Return the paths of all units of systemd."""
    return [str(path) for folder in (DEPLOY, EXAMPLES) for path in folder.iterdir() if path.suffix in UNITS]


def manifests(folder: Path) -> Iterator[str]:
    """Yield the paths of all Kubernetes resources; a part of a container's description is put into a pod."""
    for path in [*DEPLOY.glob("*.yaml"), *EXAMPLES.glob("*.yaml")]:
        if re.search(r"^kind:", path.read_text(), re.MULTILINE):
            yield str(path)
    container = {"name": "debugger", "image": "gdbheap", **json.loads((EXAMPLES / "ephemeral.json").read_text())}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": {"containers": [container]}}
    (folder / "pod.yaml").write_text(json.dumps(pod))
    yield str(folder / "pod.yaml")


def test_deploy_is_valid(tmp_path: Path) -> None:
    """Check that systemd, a shell, and Kubernetes' own schemas accept all files, also those of docs/examples."""
    verify = shutil.which("systemd-analyze")
    if verify is not None:
        done = subprocess.run([verify, "verify", "--man=no", *units()], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "") and len(units()) == 4
    (line,) = [line for line in (DEPLOY / "gdbheap-export.cron").read_text().splitlines() if " root " in line]
    assert len(line.split(maxsplit=6)) == 7
    shell = line.split(maxsplit=6)[6].replace("\\%", "%")
    assert subprocess.run(["sh", "-n", "-c", shell]).returncode == 0
    known = list(manifests(tmp_path))
    validate = str(Path(sys.executable).parent / "kubernetes-validate")
    done = subprocess.run([validate, "--strict", *known], capture_output=True, text=True)
    assert done.returncode == 0 and len(known) == 4, done.stderr
    for path in units():
        text = Path(path).read_text()
        if "[Service]" in text and "ExecStart" in text:
            assert "StateDirectoryMode=0700" in text and "LimitNOFILE=" in text and "TimeoutStopSec=" in text, path
    if verify is None:
        pytest.skip("no systemd-analyze")


def scripts_of(name: str) -> str:
    """Return the shell script of the only container in a manifest."""
    found = yaml.safe_load((DEPLOY / name).read_text())
    while "template" in (spec := found.get("spec", {})).get("jobTemplate", {}).get("spec", spec):
        found = spec.get("jobTemplate", {}).get("spec", spec)["template"]
    (container,) = found["spec"]["containers"]
    return str(container["args"][-1])


@pytest.mark.parametrize(("name", "status"), [("daemonset.yaml", 0), ("cronjob.yaml", 143)])
def test_a_pod_ends_at_once(tmp_path: Path, name: str, status: int) -> None:
    """Check that at SIGTERM the pod's shell ends, and the export with it: Kubernetes does not have to wait and kill."""
    mark, folder = tmp_path / "mark", tmp_path / "bin"
    folder.mkdir()
    os.mkfifo(mark)
    for program, text in (("od", "echo 0"), ("gdbheap", f"echo $$ > {mark}; exec sleep 1000")):
        (folder / program).write_text(f"#!/bin/sh\n{text}\n")
        (folder / program).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    with subprocess.Popen(["sh", "-c", scripts_of(name)], env=environment) as shell:
        pid = int(mark.read_text())
        shell.terminate()
        assert shell.wait(60) == status
    poll = select.poll()
    with contextlib.suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        poll.register(descriptor, select.POLLIN)
        assert poll.poll(60_000)
        os.close(descriptor)


@pytest.mark.parametrize(("status", "tries"), [(0, 1), (1, 1), (4, 1), (2, 4)])
def test_an_export_that_failed_is_tried_again(tmp_path: Path, status: int, tries: int) -> None:
    """Check that cron repeats an export after an error, but not for an unreadable worker or without a process."""
    (line,) = [line for line in (DEPLOY / "gdbheap-export.cron").read_text().splitlines() if " root " in line]
    for program, text in (("sleep", "true"), ("nice", f"echo x >> {tmp_path}/tries; exit {status}")):
        (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / program).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run(["sh", "-c", line.split(maxsplit=6)[6].replace("\\%", "%")], env=environment, check=False)
    assert (tmp_path / "tries").read_text().count("x") == tries
