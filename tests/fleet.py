"""Ask the ten questions of docs/fleet.md over hundreds of snapshots, with DuckDB, Spark and Trino.

The answers must be equal, and equal to the planted ones.

    .venv/bin/python tests/fleet.py [--hosts=10] [--workers=15] [--folder=FOLDER]

The default is 10 hosts with 15 processes each. Each of the 150 processes has a snapshot on two days: 300 snapshots,
each with its own files. Spark runs on this machine, from build/packages (scripts/packages.sh many) or
$GDBHEAP_SPARK_PYTHON, Trino from $GDBHEAP_TRINO (support/trino.py). If one of them or a Java is missing, that part is
skipped and a line says so. A line is printed for each question.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from support.fleets import QUERIES, asked, check, fleet
from support.installed import PYTHON
from support.trino import server, trino, written_for_trino

SPARK = """
import json, sys
from pyspark.sql import SparkSession
folder, queries = sys.argv[1], json.load(sys.stdin)
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
         .config("spark.sql.shuffle.partitions", "4").getOrCreate())
for name in ("snapshots", "types", "ledger", "findings", "arenas"):
    spark.read.parquet(f"{folder}/{name}").createOrReplaceTempView(name)
answers = {title: [list(row) for row in spark.sql(text).collect()] for title, text in queries.items()}
print("ANSWERS" + json.dumps(answers, default=str))
"""


def spark_python() -> str | None:
    """Return a Python with pyspark. Print the reason and return None if there is none, or no Java."""
    python = os.environ.get("GDBHEAP_SPARK_PYTHON") or str(PYTHON)
    if not Path(python).exists() or subprocess.run([python, "-c", "import pyspark"], capture_output=True).returncode:
        print("skipped: no pyspark (scripts/packages.sh many)")
        return None
    if shutil.which("java") is None:
        print("skipped: no Java for Spark (apt-get install default-jre-headless)")
        return None
    return python


def by_spark(python: str, folder: Path) -> dict[str, list[list[Any]]]:
    """Return Spark's answers to all questions."""
    command = [python, "-c", SPARK, str(folder)]
    done = subprocess.run(command, input=json.dumps(QUERIES), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"Spark failed: {done.stderr[-3000:]}")
    line = next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS"))
    found: dict[str, list[list[Any]]] = json.loads(line.removeprefix("ANSWERS"))
    return found


def by_trino(program: tuple[Path, str], folder: Path) -> dict[str, list[list[Any]]]:
    """Return Trino's answers to all questions."""
    with trino(program, folder) as found:
        return {title: found.ask(written_for_trino(text)) for title, text in QUERIES.items()}


def main() -> None:
    """Export the snapshots, ask the questions and compare the answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hosts", type=int, default=10)
    parser.add_argument("--workers", type=int, default=15)
    parser.add_argument("--folder", type=Path)
    words = parser.parse_args()
    folder = words.folder or Path(tempfile.mkdtemp(prefix="gdbheap-fleet-"))
    python, began = spark_python(), time.monotonic()
    try:
        with fleet(folder, words.hosts, words.workers) as found:
            looks = 2 * words.hosts * words.workers
            print(
                f"{looks} looks at {looks // 2} processes on two days were exported in {time.monotonic() - began:.0f} s"
            )
            began = time.monotonic()
            answers = {title: asked(found.folder, title) for title in QUERIES}
            print(f"DuckDB answered in {time.monotonic() - began:.1f} s")
            check(found, answers)
            others = {}
            if python:
                began = time.monotonic()
                others["Spark"] = by_spark(python, found.folder)
                print(f"Spark answered in {time.monotonic() - began:.1f} s")
            if program := server():
                began = time.monotonic()
                others["Trino"] = by_trino(program, found.folder)
                print(f"Trino answered in {time.monotonic() - began:.1f} s")
    finally:
        if words.folder is None:
            shutil.rmtree(folder)
    wrong = 0
    for title, rows in answers.items():
        differ = {name: found[title] for name, found in others.items() if found[title] != rows}
        wrong += len(differ)
        print(f"{'differs' if differ else 'same' if others else 'one answer'}: {title} ({len(rows)} rows)")
        for name, found in {"DuckDB": rows, **differ}.items() if differ else ():
            print(f"  {name}: {found[:3]}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
