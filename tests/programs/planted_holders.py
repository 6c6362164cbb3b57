"""Keep most of this process's memory by one holder of some shape, and write its name and its bytes.

    planted_holders.py SHAPE SEED TRUTH

It rests twice, before and after it plants. TRUTH is JSON: ``word``, a part of every name of the holder, ``bytes``, the
sum of the planted objects, and ``item``, the address of one of the blocks. It is {} if a release lacks the shape. Any
CPython runs it.
"""

import collections
import functools
import gc
import json
import os
import random
import sys
import threading
import weakref

try:
    import queue
except ImportError:
    import Queue as queue

LEAST, PAGE, ROUND = 12 << 20, 4096, 4 << 20
PLAIN = (dict, list, tuple, set, collections.deque)
SHAPES = {}
WORD = "planted"


def shape(function):
    SHAPES[function.__name__] = function
    return function


def rest():
    os.read(0, 1)


def wanted():
    """Return more than half of the bytes that the process will then have."""
    with open("/proc/self/statm") as file:
        resident = int(file.read().split()[1]) * PAGE
    return max(LEAST, resident * 5 // 4)


def block():
    return os.urandom(rng.randrange(8000, 24000))


def items():
    """Return distinct blocks of bytes."""
    left, found = wanted(), []
    while left > 0:
        found.append(block())
        left -= len(found[-1])
    return found


def told(item, *roots):
    """Return the answer: the sizes of all plain objects that the roots reach, each once, by sys.getsizeof()."""
    sizes, left = {}, list(roots)
    while left:
        one = left.pop()
        if id(one) not in sizes:
            sizes[id(one)] = sys.getsizeof(one)
            left += gc.get_referents(one) if isinstance(one, PLAIN) else []
    return {"word": WORD, "bytes": sum(sizes.values()), "item": id(item)}


def finish(answer):
    """Write the truth, and rest for good."""
    with open(truth + ".new", "w") as file:
        json.dump(answer, file)
    os.rename(truth + ".new", truth)
    gc.collect()
    rest()


class Plain(object):
    pass


class Slotted(object):
    __slots__ = ("planted",)


class Branching(object):
    __slots__ = ("body", "left", "right", "entries")


class Mapping(dict):
    pass


def module_variable(make):
    """Return a shape: the result of ``make`` for the blocks is a variable of the module."""

    def plant():
        global planted
        found = items()
        planted = make(found)
        return told(found[-1], planted)

    return plant


SHAPES["module_dict"] = module_variable(lambda found: dict(enumerate(found)))
SHAPES["module_list"] = module_variable(list)
SHAPES["module_set"] = module_variable(set)
SHAPES["module_deque"] = module_variable(collections.deque)
SHAPES["module_ordered_dict"] = module_variable(lambda found: collections.OrderedDict(enumerate(found)))
SHAPES["module_defaultdict"] = module_variable(lambda found: collections.defaultdict(list, enumerate(found)))
SHAPES["module_subclass"] = module_variable(lambda found: Mapping(enumerate(found)))
SHAPES["dict_of_dicts"] = module_variable(lambda found: {n: {"body": one} for n, one in enumerate(found)})
SHAPES["nested_twice"] = module_variable(lambda found: {"outer": {"inner": found}})


@shape
def module_bytes():
    """Make one block that refers to no other."""
    global planted
    planted = os.urandom(wanted())
    return told(planted, planted)


@shape
def many_variables():
    """Make a module of small variables. Python 2 has all bytes among its str."""
    if sys.version_info < (3,):
        return {}
    module = type(os)("planted")
    found = items()
    module.__dict__.update(("variable_%d" % n, one) for n, one in enumerate(found))
    sys.modules["planted"] = module
    return told(found[-1], *found)


@shape
def class_attribute():
    Plain.planted = items()
    return told(Plain.planted[-1], Plain.planted)


@shape
def instance_attribute():
    global holder
    holder = Plain()
    holder.planted = items()
    return told(holder.planted[-1], holder.planted)


@shape
def slot():
    global holder
    holder = Slotted()
    holder.planted = items()
    return told(holder.planted[-1], holder.planted)


@shape
def linked_list():
    global planted
    found = items()
    planted, nodes = None, []
    for one in found:
        node = Plain()
        node.body, node.after = one, planted
        planted = node
        nodes += [node] if sys.version_info >= (3, 11) else [node, node.__dict__]
    return told(found[-1], *(found + nodes))


@shape
def binary_tree():
    global planted
    found = items()
    nodes = [Branching() for _ in found]
    for number, node in enumerate(nodes):
        node.body = found[number]
        node.left, node.right = (nodes[at] if at < len(nodes) else None for at in (2 * number + 1, 2 * number + 2))
    planted = nodes[0]
    return told(found[-1], *(found + nodes))


@shape
def folders():
    global planted
    found = items()
    nodes = [Branching() for _ in found]
    for number, node in enumerate(nodes):
        node.body, node.entries = found[number], {}
        if number:
            nodes[(number - 1) // 5].entries["%d" % number] = node
    planted = nodes[0]
    return told(found[-1], *(found + nodes + [node.entries for node in nodes]))


@shape
def closures():
    global planted

    def make(block):
        def run():
            return block

        return run

    found = items()
    planted = [make(one) for one in found]
    own = [run.__closure__ for run in planted]
    return told(found[-1], planted, *(found + planted + own + [cells[0] for cells in own]))


@shape
def closure():
    global planted

    def make():
        kept = items()
        return lambda: kept

    planted = make()
    return told(planted()[-1], planted())


@shape
def default_argument():
    global planted

    def planted(kept=items()):
        return kept

    return told(planted()[-1], planted())


def fill(function, cache):
    """Return the answer for a cache that is filled by calls with numbers."""
    left, count = wanted(), 0
    while left > 0:
        last = function(count)
        left, count = left - len(last), count + 1
    return told(last, *(one for one in gc.get_referents(cache) if isinstance(one, PLAIN)))


@shape
def cached_function():
    global planted
    if not hasattr(functools, "lru_cache"):
        return {}
    planted = functools.lru_cache(maxsize=None)(lambda number: block())
    return fill(planted, planted)


@shape
def cached_method():
    global holder
    if not hasattr(functools, "lru_cache"):
        return {}
    Plain.planted = functools.lru_cache(maxsize=None)(lambda self, number: block())
    holder = Plain()
    return fill(holder.planted, Plain.__dict__["planted"])


@shape
def thread_local():
    global planted
    planted = threading.local()
    done, answer = threading.Event(), []

    def work():
        planted.kept = items()
        answer.append(told(planted.kept[-1], planted.kept))
        done.set()
        threading.Event().wait(1 << 20)

    thread = threading.Thread(target=work)
    thread.daemon = True
    thread.start()
    done.wait()
    return answer[0]


@shape
def context_variable():
    global planted
    try:
        import contextvars
    except ImportError:
        return {}
    planted = contextvars.ContextVar("planted")
    planted.set(items())
    return told(planted.get()[-1], planted.get())


@shape
def frame_local():
    def hold():
        planted = items()
        finish(told(planted[-1], planted))
        return planted

    hold()


@shape
def generator_local():
    global generator

    def generate():
        planted = items()
        yield told(planted[-1], planted)
        yield planted

    generator = generate()
    return next(generator)


@shape
def kept_traceback():
    global kept
    answer = []

    def fail():
        planted = items()
        answer.append(told(planted[-1], planted))
        raise ValueError(len(planted))

    try:
        fail()
    except ValueError:
        kept = sys.exc_info()
    return answer.pop()


# Not valid in Python 2.
TASK = """
import asyncio
async def hold():
    planted = items()
    answer.append(told(planted[-1], planted))
    await asyncio.Event().wait()
    return planted
async def run():
    task = asyncio.ensure_future(hold())
    await asyncio.sleep(0)
    finish(answer.pop())
answer = []
loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
loop.run_until_complete(run())
"""


@shape
def asyncio_task():
    if sys.version_info < (3,):
        return {}
    exec(TASK, globals())


@shape
def module_queue():
    global planted
    found = items()
    planted = queue.Queue()
    for one in found:
        planted.put(one)
    return told(found[-1], *found)


@shape
def weakref_callback():
    global planted
    found = items()
    planted = weakref.ref(rest, functools.partial(len, found))
    return told(found[-1], found)


@shape
def memory_view():
    global planted
    found = bytearray(os.urandom(wanted()))
    planted = memoryview(found)
    return told(found, found)


@shape
def extension_object():
    """Make blocks of C that a field of an object leads to, each to the next."""
    global planted
    import planted_extension

    planted, count, item = planted_extension.hold(wanted())
    return {"word": WORD, "bytes": count, "item": item}


@shape
def extension_static():
    """Make blocks of C to which only a static variable of an extension leads."""
    import planted_extension

    count, item = planted_extension.keep(wanted())
    return {"word": "planted_extension", "bytes": count, "item": item}


@shape
def mapped_memory():
    """Map memory, as Python 2 and later do it."""
    global planted
    import mmap

    size = wanted() // PAGE * PAGE + PAGE
    planted = mmap.mmap(-1, size)
    planted.write(os.urandom(size))
    return {"word": WORD, "bytes": size, "item": id(planted)}


@shape
def modules_of_one_file():
    """Load modules as many programs load their plug-ins."""
    path = os.path.join(os.path.dirname(truth), "planted_plugin.py")
    source = compile("def run(step):\n    return TABLE[step]\n", path, "exec")
    size, found = wanted() // 400, []
    for n in range(400):
        module = type(os)("plugin_%d" % n)
        module.__file__ = path
        exec(source, module.__dict__)
        module.TABLE = [os.urandom(8000) for _ in range(size // 8000 + 1)]
        sys.modules[module.__name__] = module
        found += [module, module.TABLE, module.run, module.run.__code__]
    # The namespaces' own sizes: all else that they lead to is shared.
    own = sum(sys.getsizeof(one.__dict__) for one in found[::4])
    answer = told(found[1][0], *found)
    return dict(answer, word="plugin", bytes=answer["bytes"] + own)


def large(unit):
    """Return how many units of bytes fill a large block well: some allocators round its size up to 4 MiB."""
    return (wanted() // ROUND + 1) * ROUND // unit - (ROUND // 16) // unit


@shape
def numpy_array():
    global planted
    import numpy

    planted = numpy.ones(large(8))
    return {"word": WORD, "bytes": planted.nbytes, "item": id(planted)}


@shape
def numpy_over_bytes():
    """Make an array whose memory is that of another object."""
    global planted
    import numpy

    planted = numpy.frombuffer(os.urandom(large(1)))
    return {"word": WORD, "bytes": planted.nbytes, "item": id(planted)}


@shape
def arrow_array():
    global planted
    import pyarrow

    part = pyarrow.array(range(1 << 15), pyarrow.int64())
    planted = pyarrow.concat_arrays([part] * large(1 << 18))
    return {"word": WORD, "bytes": planted.nbytes, "item": id(planted)}


@shape
def polars_frame():
    global planted
    import polars

    planted = polars.DataFrame({"column": polars.int_range(large(8), eager=True)})
    return {"word": WORD, "bytes": planted.estimated_size(), "item": id(planted)}


name, seed, truth = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(seed)
rest()
finish(SHAPES[name]())
