"""Show in thousands of runs that no process is harmed: ``.venv/bin/python tests/harm PART [OPTIONS]``.

kills   run whole commands, and end them at random instants by signals, or by too little memory, descriptors or disk
rounds  attach to servers under load and release them, by the library, the shell's command and gdb
busy    find the longest stop of each command on a machine with more busy programs than cores
recorded    record the calls of programs, and kill the programs or gdbheap trace at random instants

Each part ends with a table of what was done and of the harm. The exit status is 1 if anything was harmed. ``--seed``
and ``--first`` continue an earlier run. Options that this script does not know, such as ``--clone``, are given to each
gdbheap command.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
# The installed package is started: not the folder of this file, nor the one above the tests.
sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]

from support import programs  # noqa: E402
from support.nouns import GRAPHS, PLAIN  # noqa: E402

from harm.busy import Busy  # noqa: E402
from harm.kills import Killer  # noqa: E402
from harm.recorded import WAYS, Kills  # noqa: E402
from harm.rounds import Rounds, begin, load_since  # noqa: E402
from harm.targets import STARTERS, started  # noqa: E402
from harm.verdict import Watch, line_of  # noqa: E402

ALONE = 15.0
TOLD = 100


def main() -> int:
    """Return 1 if anything was harmed."""
    options, words = _parser().parse_known_args()
    if missing := [word for word in words if not _is_known(word)]:
        print(f"left out: {' '.join(missing)} (no option of this gdbheap)")
    words = [word for word in words if _is_known(word)]
    print(
        f"seed {options.seed}, from {options.first}; options of each command: {' '.join(words) or 'none'}", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="gdbheap-harm-") as folder:
        return PARTS[options.part](options, words, Path(folder))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("part", choices=PARTS)
    parser.add_argument("--count", type=int, help="how many (1000 kills, 2000 rounds, 1 command of each noun)")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--targets", default=",".join(STARTERS), help="some of them, with commas between")
    parser.add_argument("--calls", action="store_true", help="also commands that call into the process")
    parser.add_argument("--following", action="store_true", help="kills: only commands that follow a process")
    parser.add_argument("--killed", default=",".join(WAYS), help="recorded: some of these ways")
    parser.add_argument("--programs", type=int, default=20, help="busy: how many programs compute")
    everything = ",".join(noun or "heap" for noun in (*PLAIN, *GRAPHS))
    parser.add_argument("--commands", default=everything, help="busy: some of them")
    parser.add_argument("--size", type=int, default=1024, help="busy: MiB of Python objects in the target")
    return parser


def _is_known(word: str) -> bool:
    """Return whether a command of this gdbheap has an option."""
    about = subprocess.run([str(programs.GDBHEAP), "info", "--help"], capture_output=True, text=True, check=True)
    return word.split("=")[0] in about.stdout


def _kills(options: argparse.Namespace, words: list[str], folder: Path) -> int:
    room = folder / "commands"
    room.mkdir()
    with started(options.targets.split(","), folder) as targets:
        killer = Killer([Watch(target, room) for target in targets], room, words, options.calls, options.following)
        harmed = 0
        for number in range(options.first, options.first + (options.count or 1000)):
            told, harm = killer.one(random.Random(f"{options.seed} {number}"))
            harmed += _told(number, told, harm)
            if harm["dead"]:
                break
        print(killer.table())
    for _, ending in killer.endings:
        if ending.unclear:
            print(f"unclear ({ending.way}): {ending.unclear.strip().splitlines()[-1][:300]}")
    return 1 if harmed else 0


def _told(number: int, told: str, harm: Counter[str]) -> bool:
    is_harm = any(count > 0 for count in harm.values())
    if is_harm:
        print(f"{number} {told}: {line_of(harm)}", flush=True)
    elif number % TOLD == TOLD - 1:
        print(f"{number + 1} done", flush=True)
    return is_harm


def _rounds(options: argparse.Namespace, words: list[str], folder: Path) -> int:
    room = folder / "commands"
    room.mkdir()
    with started(options.targets.split(","), folder) as targets:
        watches = [Watch(target, room) for target in targets]
        rounds, loads, harmed = Rounds(watches, room, words), {}, 0
        starts = [begin(watch) for watch in watches]
        time.sleep(ALONE)
        alone = [load_since(watch, start) for watch, start in zip(watches, starts)]
        share = (options.count or 2000) // len(watches)
        for watch, before in zip(watches, alone):
            start = begin(watch)
            for number in range(options.first, options.first + share):
                harm = rounds.one(watch, random.Random(f"{options.seed} {watch.target.name} {number}"))
                harmed += _told(number, watch.target.name, harm)
                if harm["dead"]:
                    break
            loads[watch.target.pid] = before, load_since(watch, start)
        rounds.close()
        print(rounds.table(loads))
    for said, count in rounds.said.most_common(10):
        print(f"{count} x {said}")
    return 1 if harmed else 0


def _busy(options: argparse.Namespace, words: list[str], folder: Path) -> int:
    busy = Busy(folder, options.programs, options.size, words)
    try:
        for noun in options.commands.split(",") * (options.count or 1):
            busy.command(noun.replace("heap", ""))
    finally:
        busy.close()
        print(busy.table())
    return 1 if busy.too_long() else 0


def _recorded(options: argparse.Namespace, words: list[str], folder: Path) -> int:
    kills, harmed = Kills(folder, options.killed.split(",")), 0
    for number in range(options.first, options.first + (options.count or 1000)):
        told, harm = kills.one(random.Random(f"{options.seed} {number}"))
        harmed += _told(number, told, harm)
    print(kills.table())
    return 1 if harmed else 0


PARTS = {"recorded": _recorded, "kills": _kills, "rounds": _rounds, "busy": _busy}

if __name__ == "__main__":
    sys.exit(main())
