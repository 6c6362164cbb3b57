"""Services and jobs that use other projects' packages (tests/services): start them and wait for them."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from support.installed import python_with
from support.programs import PATIENCE, end_group, plain_environment

FOLDER = Path(__file__).resolve().parent.parent / "services"
WORKER = "gunicorn"


@dataclass(frozen=True)
class Service:
    """A service to test. ``title``: its name for people; ``modules``: the modules that it needs; ``script``: its file
    in tests/services, "" for Jupyter; ``size``: the amount of its work.
    """

    title: str
    modules: tuple[str, ...]
    script: str
    size: int = 0


SERVICES = (
    Service("Django under gunicorn", ("django", "gunicorn"), "shop", 20_000),
    Service("an asyncio service with 50,000 tasks", (), "tasks", 50_000),
    Service("lxml, 400 documents", ("lxml",), "documents", 400),
    Service("Jupyter's server", ("jupyter_server",), ""),
    Service("SQLAlchemy with SQLite", ("sqlalchemy",), "orders", 8_000),
    Service("scikit-learn", ("sklearn",), "models", 4_000),
    Service("a pandas job", ("pandas",), "frames", 400_000),
)


@contextlib.contextmanager
def serving(service: Service, directory: Path) -> Iterator[int]:
    """Yield the pid of the working process once its work is done. All its processes are ended in any case.

    Skip the test if a package is missing.
    """
    python = python_with(*service.modules)
    ready, log = directory / "ready", directory / "log"
    local = {"JUPYTER_RUNTIME_DIR": str(directory), "HOME": str(directory), "ROWS": str(service.size)}
    command = [python, str(FOLDER / f"{service.script}.py"), str(service.size), str(ready)]
    if service.script == "shop":
        command = [python, "-m", "gunicorn", "--workers=1", f"--bind=unix:{directory / 'socket'}",
                   f"--chdir={FOLDER}", f"--pid={ready}", "shop:application"]  # fmt: skip
    elif not service.script:
        command = [python, "-m", "jupyter_server", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root",
                   f"--ServerApp.root_dir={directory}"]  # fmt: skip
    environment = {**plain_environment(), **local, "PYTHONDONTWRITEBYTECODE": "1"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment,
            start_new_session=True,
        )  # fmt: skip
    try:
        yield _working(service, process, ready, log)
        assert process.poll() is None, log.read_text(errors="replace")[-2000:]
    finally:
        end_group(process)


def _working(service: Service, process: subprocess.Popen[bytes], ready: Path, log: Path) -> int:
    """Wait until the service rests; return its pid. For gunicorn, this is the worker's pid."""
    deadline = time.monotonic() + PATIENCE
    while not (ready.exists() if service.script else b"http://127.0.0.1" in log.read_bytes()):
        assert process.poll() is None and time.monotonic() < deadline, log.read_text(errors="replace")[-2000:]
        time.sleep(0.1)
    pid = process.pid
    if service.script == "shop":
        children = Path(f"/proc/{pid}/task/{pid}/children")
        while not children.read_text().split():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        pid = int(children.read_text().split()[0])
    _rest(pid, deadline)
    return pid


def _rest(pid: int, deadline: float) -> None:
    """Wait until the process has used no processor time for a second."""
    last, since = -1, time.monotonic()
    while time.monotonic() < min(since + 1, deadline):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        spent = int(fields[11]) + int(fields[12])
        if spent > last + 1:
            last, since = spent, time.monotonic()
        time.sleep(0.1)
