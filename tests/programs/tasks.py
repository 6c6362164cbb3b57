"""Make random tasks, coroutines and generators, write asyncio's data about each to FILE, and rest.

Arguments: a random seed, how many groups of tasks, how many in the largest, FILE.
"""

import asyncio
import gc
import json
import os
import random
import sys

SEED, GROUPS, MOST, FILE = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
rng = random.Random(SEED)
NEVER = []
KEPT = []


class Own(asyncio.Task):
    """A subclass of Task."""


async def sleeps(number):
    await asyncio.sleep(3600 + number)


async def waits(number):
    event = asyncio.Event()
    NEVER.append(event)
    await event.wait()


async def nested(number):
    if number % 2:
        await nested(number - 1)
    elif number > 2:
        await nested(number - 2)
    else:
        await sleeps(number)


class Awaitable:
    """An object whose __await__ is a generator."""

    def __await__(self):
        yield from asyncio.sleep(3600).__await__()


async def through(number):
    await Awaitable()


async def produces():
    for number in range(3):
        yield number
        await asyncio.sleep(3600)


async def consumes(number):
    async for _item in produces():
        await asyncio.sleep(0)


async def gathers(number):
    await asyncio.gather(sleeps(number), waits(number))


async def other(number):
    inner = asyncio.ensure_future(sleeps(number))
    KEPT.append(inner)
    await inner


def numbers(count):
    for number in range(count):  # noqa: UP028
        yield number


def delegating(count):
    yield from numbers(count)


def looping(count):
    for number in numbers(count):  # noqa: UP028
        yield number


MAKERS = [sleeps, waits, nested, through, consumes, gathers, other]


def unwrapped(thing):
    """Return the target of a coroutine's __await__(), or an asynchronous generator's __anext__(): only the garbage
    collector knows it."""
    names = {"coroutine_wrapper": "coroutine", "async_generator_asend": "async_generator"}
    name = names.get(type(thing).__name__)
    return next(one for one in gc.get_referents(thing) if type(one).__name__ == name) if name else thing


def chain(thing):
    """Return the places at which a coroutine or generator waits, inwards: (qualified name, line)."""
    found = []
    while thing is not None:
        names = ("cr_frame", "gi_frame", "ag_frame")
        frame = next((getattr(thing, name) for name in names if hasattr(thing, name)), None)
        if frame is None:
            break
        found.append((thing.__qualname__, frame.f_lineno))
        names = ("cr_await", "gi_yieldfrom", "ag_await")
        thing = unwrapped(next((getattr(thing, name) for name in names if hasattr(thing, name)), None))
    return found


def told(task, current):
    coroutine = task._coro if not hasattr(task, "get_coro") else task.get_coro()
    running = task is current
    return {
        "address": id(task),
        "name": task.get_name() if hasattr(task, "get_name") else None,
        "type": type(task).__module__ + "." + type(task).__qualname__,
        "coroutine": coroutine.__qualname__,
        "chain": None if running else chain(coroutine),
        "running": running,
    }


async def main():
    loop = asyncio.get_event_loop()
    python_task = asyncio.tasks._PyTask if hasattr(asyncio.tasks, "_PyTask") else asyncio.Task
    factories = [
        None,
        lambda loop, coro, **more: python_task(coro, loop=loop, **more),
        lambda loop, coro, **more: Own(coro, loop=loop, **more),
    ]
    for _ in range(GROUPS):
        loop.set_task_factory(rng.choice(factories))
        make, count = rng.choice(MAKERS), rng.randrange(1, MOST)
        for _number in range(count):
            task = loop.create_task(make(rng.randrange(6)))
            KEPT.append(task)
            if hasattr(task, "set_name") and rng.random() < 0.3:
                task.set_name(f"named {rng.getrandbits(40):x}")
    loop.set_task_factory(None)
    ended = [asyncio.ensure_future(asyncio.sleep(0)) for _ in range(rng.randrange(1, 20))]
    cancelled = [asyncio.ensure_future(asyncio.sleep(3600)) for _ in range(rng.randrange(1, 20))]
    KEPT.extend(ended + cancelled)
    for _ in range(10):
        await asyncio.sleep(0)
    for task in cancelled:
        task.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    not_begun = [sleeps(1) for _ in range(rng.randrange(1, 9))]
    generators = [delegating(9) for _ in range(rng.randrange(1, 9))] + [looping(9) for _ in range(rng.randrange(1, 9))]
    for generator in generators:
        next(generator)
    exhausted = [numbers(0) for _ in range(rng.randrange(1, 9))]
    for generator in exhausted:
        list(generator)
    current = asyncio.current_task() if hasattr(asyncio, "current_task") else asyncio.Task.current_task()
    if hasattr(asyncio, "all_tasks"):
        # Since 3.14 each of the two classes knows its own.
        everything = asyncio.all_tasks() | getattr(asyncio.tasks, "_py_all_tasks", set)()
    else:  # 3.6: each of the two classes knows its own
        everything = {one for kind in (asyncio.Task, python_task) for one in kind.all_tasks() if not one.done()}
    truth = {
        "tasks": [told(task, current) for task in everything],
        "finished": len(ended),
        "cancelled": len(cancelled),
        "not_begun": [id(one) for one in not_begun],
        "generators": {str(id(one)): chain(one) for one in generators},
        "exhausted": [id(one) for one in exhausted],
    }
    with open(FILE, "w") as file:
        json.dump(truth, file)
    del everything
    os.read(0, 1)


loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete(main())
