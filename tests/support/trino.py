"""A private Trino on loopback that reads a folder of partitions by the statements of deploy/trino.sql.

GDBHEAP_TRINO names the folder of an unpacked trino-server, GDBHEAP_TRINO_JAVA a Java that it runs on (``java`` by
default).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.ports import free_port

STATEMENTS = Path(__file__).resolve().parents[2] / "deploy" / "trino.sql"
LOCATION = "s3://memory/heaps"
PATIENCE = 180
# A table name in one of the statements.
TABLE = re.compile(r"TABLE hive\.heaps\.(\w+)|'heaps', '(\w+)'")
# How Trino differs from DuckDB and Spark: one word of its grammar, and its lack of a median.
SORTED = r"array_sort(array_agg(\1))"
MEDIAN = f"(element_at({SORTED}, (count(\\1) + 1) / 2) + element_at({SORTED}, count(\\1) / 2 + 1)) / 2e0"
OPTIONS = [
    "-Xmx2G", "-Djdk.attach.allowAttachSelf=true", "-XX:+EnableDynamicAgentLoading", "-Dfile.encoding=UTF-8",
    "--add-modules=jdk.incubator.vector", "--enable-native-access=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
]  # fmt: skip


def server() -> tuple[Path, str] | None:
    """Return the folder of Trino and Java; if one is missing, return None and the reason."""
    folder = os.environ.get("GDBHEAP_TRINO", "")
    java = shutil.which(os.environ.get("GDBHEAP_TRINO_JAVA", "java"))
    if not folder or not (Path(folder) / "lib").is_dir() or java is None:
        print("skipped: no Trino (GDBHEAP_TRINO: an unpacked trino-server; GDBHEAP_TRINO_JAVA: a Java for it)")
        return None
    return Path(folder), java


def written_for_trino(text: str) -> str:
    """Return a question of docs/fleet.md in Trino's dialect."""
    return re.sub(r"\bmedian\((\w+)\)", MEDIAN, re.sub(r"\btrim\b", '"trim"', text))


def _configure(folder: Path, port: int, heaps: Path) -> Path:
    catalogs = folder / "etc" / "catalog"
    catalogs.mkdir(parents=True)
    config = folder / "etc" / "config.properties"
    config.write_text(
        f"coordinator=true\nnode-scheduler.include-coordinator=true\nhttp-server.http.port={port}\n"
        f"discovery.uri=http://127.0.0.1:{port}\ncatalog.management=static\ncatalog.config-dir={catalogs}\n"
    )
    (catalogs / "hive.properties").write_text(
        "connector.name=hive\nhive.metastore=file\nhive.metastore.catalog.dir=local:///metastore\n"
        "fs.native-local.enabled=true\n"
        f"local.location={folder / 'files'}\nhive.non-managed-table-writes-enabled=true\n"
    )
    (folder / "files" / "metastore").mkdir(parents=True)
    (folder / "files" / "heaps").symlink_to(heaps)
    return config


class Trino:
    """A Trino server that is running."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def _answer(self, url: str, text: str | None = None) -> dict[str, Any]:
        headers = {"X-Trino-User": "tests", "X-Trino-Catalog": "hive", "X-Trino-Schema": "heaps"}
        request = urllib.request.Request(url, None if text is None else text.encode(), headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            found: dict[str, Any] = json.load(answer)
        return found

    def is_ready(self) -> bool:
        """Return whether the server has started."""
        try:
            return not self._answer(f"{self._url}/v1/info")["starting"]
        except OSError:
            return False

    def ask(self, text: str) -> list[list[Any]]:
        """Return the rows. Raises AssertionError if the server refuses the statement."""
        answer, rows = self._answer(f"{self._url}/v1/statement", text), []
        while True:
            assert "error" not in answer, (text, answer["error"]["message"])
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            answer = self._answer(answer["nextUri"])


@contextlib.contextmanager
def trino(program: tuple[Path, str], heaps: Path) -> Iterator[Trino]:
    """Yield a Trino that has the tables of a folder of partitions."""
    home, java = program
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="gdbheap-trino-") as name:
        folder = Path(name)
        config = _configure(folder, port, heaps)
        node = ["environment=tests", "id=one", f"data-dir={folder}", "internal-address=127.0.0.1", "bind-ip=127.0.0.1"]
        settings = [f"-Dconfig={config}", *(f"-Dnode.{word}" for word in node)]
        command = [java, *OPTIONS, *settings, "-cp", f"{home / 'lib'}/*", "io.trino.server.TrinoServer"]
        log = folder / "log"
        # The server searches for its plugins in its working folder.
        for plugins in home.glob("*plugin"):
            (folder / plugins.name).symlink_to(plugins)
        with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output, cwd=folder) as process:
            try:
                found, end = Trino(port), time.monotonic() + PATIENCE
                while not found.is_ready():
                    assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
                    time.sleep(1)
                statements = STATEMENTS.read_text().replace(LOCATION, "local:///heaps")
                for statement in filter(None, map(str.strip, re.sub(r"--.*", "", statements).split(";"))):
                    table = TABLE.search(statement)
                    if table is None or (heaps / (table[1] or table[2])).is_dir():
                        found.ask(statement)
                yield found
            finally:
                process.terminate()
