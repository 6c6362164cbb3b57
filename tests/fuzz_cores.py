"""Fuzz the reading of cores, by hand: ``.venv/bin/python tests/fuzz_cores.py [--mutants=10000] [--workers=1]``.

It makes small cores of C programs and of each CPython found, damages copies of them at random, and runs every command
on each copy. Findings are: a crash, a hang, a traceback, an undocumented exit status, invalid JSON, and books that do
not balance. Each finding is printed with the command that repeats it, and the exit status is then 1. After an
interruption, ``--first`` continues at the same place, with the same ``--seed``, whose cores are stored in ``--folder``.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

from fuzz.cores import make
from fuzz.work import SECONDS, Finding, Tally, Worker

FOLDER = Path(__file__).resolve().parent.parent / "build" / "fuzz"
KEPT = 40


def main() -> int:
    """Run the fuzzer. Return 1 if it found anything."""
    options = _options()
    folder = options.folder / str(options.seed)
    cores = _cores(folder, options)
    numbers = iter(range(options.first, options.first + options.mutants))
    lock, tallies = threading.Lock(), [Tally() for _ in range(options.workers)]
    print(f"seed {options.seed}: {options.mutants} mutants of {len(cores)} cores", flush=True)
    started = time.monotonic()

    def work(tally: Tally) -> None:
        worker = Worker(options.seconds)
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return worker.remove()
            core = cores[number % len(cores)]
            for finding in worker.run(core, f"{options.seed} {number}", tally, options.only):
                _tell(finding, number, folder, worker)
            if number % 200 == 199:
                print(f"{number + 1} after {time.monotonic() - started:.0f} s", flush=True)

    threads = [threading.Thread(target=work, args=(tally,)) for tally in tallies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _summary(tallies, time.monotonic() - started)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--mutants", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of processor time, beyond which a mutant hangs")
    parser.add_argument("--only", help="ask this noun only, of a mutant that is repeated")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    return parser.parse_args()


def _cores(folder: Path, options: argparse.Namespace) -> list[Path]:
    """Return the cores of this seed; they are made only once."""
    table = folder / "cores.json"
    if not table.exists():
        folder.mkdir(parents=True, exist_ok=True)
        cores = make(folder, random.Random(options.seed))
        table.write_text(json.dumps([core.name for core in cores]))
    return [folder / name for name in json.loads(table.read_text())]


def _tell(finding: Finding, number: int, folder: Path, worker: Worker) -> None:
    """Print a finding, add it to the file of findings, and keep the mutant."""
    print(f"FOUND: --first={number} --mutants=1: {finding.core} {finding.mutations} {finding.noun}")
    print("   " + finding.what[-600:].replace("\n", "\n   "), flush=True)
    with (folder / "findings.jsonl").open("a") as file:
        file.write(json.dumps({"number": number, **asdict(finding)}) + "\n")
    if len(list(folder.glob("mutant-*"))) < KEPT:
        worker.keep(folder / f"mutant-{number}")


def _summary(tallies: list[Tally], seconds: float) -> int:
    findings = [finding for tally in tallies for finding in tally.findings]
    mutants, answered = (sum(getattr(tally, name) for tally in tallies) for name in ("mutants", "answered"))
    slowest = max(tally.slowest for tally in tallies)
    print(f"{mutants} mutants in {seconds:.0f} s: {answered} answers, {len(findings)} findings")
    print(f"slowest answer: {slowest[0]:.1f} s, {slowest[1] or 'heap'} of {slowest[2]} (seed {slowest[3]})")
    for what, count in Counter((finding.noun.split(" ")[0], finding.what[-150:]) for finding in findings).most_common(
        30
    ):
        print(f"{count} x {what}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
