"""Use the names of a JSON list for all names that a program chooses, and rest: modules, types, attributes, keys,
functions, their files, threads, coroutines and tasks, mapped files.

Usage: evil_names.py NAMES FOLDER [exit]
"""

import asyncio
import ctypes
import json
import mmap
import os
import sys
import threading
import tracemalloc
import types

NAMES, FOLDER = json.loads(sys.argv[1]), sys.argv[2]
PR_SET_NAME = 15
HELD = {}


def renamed(function, name):
    """Return the function under another name, in a file with such a name."""
    return types.FunctionType(function.__code__.replace(co_name=name, co_filename=f"/x/{name}.py"), {**globals()})


def made(name):
    """Return a type with that name in a module with that name; None if Python refuses the name."""
    try:
        kind = type(name, (), {"__module__": name})
    except (ValueError, UnicodeError):
        return None
    module = types.ModuleType(name)
    setattr(module, name, kind)
    sys.modules[name] = module
    return kind


def kept(name):
    """Return objects of a type with this name, with a buffer each, cycles of them, and a dict with keys like it."""
    kind = made(name)
    if kind is None:
        return
    held = [kind() for _ in range(40)]
    for number, one in enumerate(held):
        setattr(one, name, bytearray(9000))
        setattr(one, name + "2", f"{name} {number % 3}")
    HELD[name] = held
    if "most" not in HELD and "\n" in name:
        HELD["most"] = type(name, (list,), {"__module__": "app"})()
        HELD["most"].extend([None] * 3_000_000)
    setattr(sys.modules[name], name + "3", {name: bytearray(500_000)})
    lost = kind()
    setattr(lost, name, lost)


def rests(name, ready):
    """Rest, as the function of a thread."""
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "wb") as comm:
        comm.write(name.encode("utf-8", "replace").replace(b"\0", b"0")[:15])
    ready.set()
    threading.Event().wait()


def started(name):
    """Return a thread with this name, in a function with this name."""
    ready = threading.Event()
    threading.Thread(target=renamed(rests, name), args=(name, ready), daemon=True, name=name).start()
    ready.wait()


async def waits():
    """Wait, as the coroutine of a task."""
    await asyncio.sleep(3600)


async def main():
    """Make all objects, and rest."""
    tracemalloc.start()
    tasks = []
    for place, name in enumerate(NAMES):
        kept(name)
        tasks.append(asyncio.ensure_future(renamed(waits, name)()))
        tasks[-1].set_name(name)
        started(name)
        path = os.path.join(
            os.fsencode(FOLDER), name.encode("utf-8", "replace")[:200].replace(b"\0", b"").replace(b"/", b"")
        )
        with open(path + b"%d" % place, "wb+") as file:
            file.write(b"x" * 8192)
            file.flush()
            HELD[place] = mmap.mmap(file.fileno(), 8192)
    await asyncio.sleep(0)
    holes = [bytearray(90_000) for _ in range(100)]
    del holes[::2]
    ctypes.CDLL(None).prctl(PR_SET_NAME, b"\x1b[31m\nFindings", 0, 0, 0)
    if sys.argv[3:]:
        os._exit(0)
    ctypes.CDLL(None).pause()


asyncio.run(main())
