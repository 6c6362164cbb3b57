"""Do actions in child processes, so that the watch never waits for a command, a core or a read that hangs.

Actions on one process run one at a time; actions on several processes run at the same time. An action first writes its
files, then runs its command. Only a few actions write at the same time, because each needs memory and a processor. The
number of running commands is limited separately, so that a command that hangs does not delay the files of another
action.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator
from dataclasses import field
from typing import Any

from gdbheap.dataclass import dataclass
from gdbheap.errors import exhausted
from gdbheap.watching.actions import Actions, Done, Request, run, save
from gdbheap.watching.child import PARTING_SECONDS, READ_SECONDS, Child, EndingChildren, wait_for_end

__all__ = ["ActionQueue"]

SAVE, RUN = "save", "run"
# The largest number of actions that do the same step at the same time, for each step.
AT_ONCE = {SAVE: 4, RUN: 16}
HANGS = {SAVE: "the snapshot or core was not finished in time", RUN: "the command of --run did not end in time"}
UNFINISHED = {
    SAVE: "not all of its files were finished, because the watch was asked to end",
    RUN: "the command of --run did not finish, because the watch was asked to end",
}
LOST = "the gdbheap process that acted was killed, or failed"
# The steps end themselves when their time is over. A child that has not ended this many seconds later hangs.
GRACE_SECONDS = 3 * PARTING_SECONDS
# An action that takes longer than this is reported before it is finished.
SLOW_SECONDS = 5.0


@dataclass
class _Action:
    """An action.

    ``steps``: the remaining steps, beginning with the current one.
    ``child``: the process that does the current step, None if the step waits for its turn.
    ``deadline``: when the child must have finished (``time.monotonic``).
    ``slow_at``: when to report that the action is not finished; infinite once that is done.
    """

    request: Request
    steps: list[str]
    done: Done = field(default_factory=Done)
    child: Child | None = None
    deadline: float = math.inf
    slow_at: float = field(default_factory=lambda: time.monotonic() + SLOW_SECONDS)


class ActionQueue:
    """The actions that are requested or in progress. ``actions``: the steps to do, and their limits; ``leaving``: child
    processes that are ending and may still keep a watched process stopped."""

    def __init__(self, actions: Actions, leaving: EndingChildren) -> None:
        self._limits, self._leaving = actions, leaving
        self._actions: list[_Action] = []

    @property
    def saves(self) -> bool:
        """Whether each action writes files, for which it reads the process."""
        return self._limits.snapshot or self._limits.heap or self._limits.core

    @property
    def is_busy(self) -> bool:
        """Whether an action runs or waits in the queue."""
        return bool(self._actions)

    @property
    def is_saving(self) -> bool:
        """Whether an action still has files to write."""
        return any(action.steps[0] == SAVE for action in self._actions)

    @property
    def due(self) -> float:
        """The time at which ``turn`` must be called next (``time.monotonic``)."""
        return min((min(action.deadline, action.slow_at) for action in self._actions), default=math.inf)

    @property
    def descriptors(self) -> list[int]:
        """The descriptors that are readable once a step has a result."""
        return [action.child.descriptor for action in self._actions if action.child is not None]

    def add(self, request: Request) -> None:
        """Add an action. The action starts at the next ``turn``, or later if too many actions are in progress."""
        self._actions.append(_Action(request, [SAVE] * self.saves + [RUN] * bool(self._limits.run)))

    def has(self, pid: int, kind: str | None = None) -> bool:
        """Return whether an action on the process ``pid`` is requested or in progress. ``kind``: consider only actions
        that have a cause of this kind; None: consider all actions."""
        return any(one.request.pid == pid and kind in (None, one.request.cause.kind) for one in self._actions)

    def turn(self, ready: Collection[int]) -> Iterator[tuple[Request, Done]]:
        """Start the actions that can start, and yield each action that is finished. ``ready``: the descriptors that are
        readable.
        """
        for action in self._actions:
            if action.child is not None:
                self._hear(action, action.child, ready)
        for action in self._actions:
            if action.steps and action.child is None and self._has_room(action):
                self._start(action)
        finished = [action for action in self._actions if not action.steps]
        self._actions = [action for action in self._actions if action.steps]
        yield from ((action.request, action.done) for action in finished)

    def slow(self) -> Iterator[tuple[Request, Done, str]]:
        """Yield, once for each action that takes long, its request, its result so far, and the step that still runs:
        "save" or "run".
        """
        now = time.monotonic()
        for action in self._actions:
            if now >= action.slow_at:
                action.slow_at = math.inf
                yield action.request, action.done, action.steps[0]

    def end(self) -> list[tuple[Request, Done]]:
        """Abandon all actions, and wait until their children have ended. Return the abandoned actions."""
        abandoned, self._actions = self._actions, []
        for action in abandoned:
            if action.child is not None:
                self._leaving.add(action.child)
            step = action.steps[0]
            action.done.add(Done(errors=[UNFINISHED[step]], was_run=step == RUN))
        self._leaving.end()
        return [(action.request, action.done) for action in abandoned]

    def _has_room(self, action: _Action) -> bool:
        others = [one for one in self._actions if one.child is not None]
        same = sum(one.steps[0] == action.steps[0] for one in others)
        return same < AT_ONCE[action.steps[0]] and all(one.request.pid != action.request.pid for one in others)

    def _start(self, action: _Action) -> None:
        limits, request, saved, leaving = self._limits, action.request, action.done, self._leaving.pids

        def write() -> dict[str, Any]:
            wait_for_end(leaving, PARTING_SECONDS)
            return vars(save(limits, request))

        def start() -> dict[str, Any]:
            return vars(run(limits, request, saved))

        is_save = action.steps[0] == SAVE
        seconds = request.seconds + (limits.max_stop or READ_SECONDS) if is_save else limits.run_limit or math.inf
        try:
            action.child = Child(write if is_save else start)
        except OSError as error:
            self._finish(action, Done(errors=[f"gdbheap could not act: {exhausted(error)}"]))
            return
        action.deadline = time.monotonic() + seconds + GRACE_SECONDS

    def _hear(self, action: _Action, child: Child, ready: Collection[int]) -> None:
        if child.descriptor in ready and child.hear():
            found = child.result()
            self._finish(action, Done(errors=[LOST]) if found is None else Done(**found))
        elif time.monotonic() >= action.deadline:
            self._finish(action, Done(errors=[f"gdbheap gave up: {HANGS[action.steps[0]]}"]))

    def _finish(self, action: _Action, done: Done) -> None:
        """Store the result of the current step, and continue with the next one."""
        if action.child is not None:
            self._leaving.add(action.child)
        done.was_run = done.was_run or action.steps[0] == RUN
        action.done.add(done)
        action.child, action.deadline = None, math.inf
        action.steps.pop(0)
