"""Hold known numbers of objects: ``population.py SEED MOST LARGEST TRUTH``.

The program stops twice, each time in a read of one byte from standard input: first when everything is prepared but no
object is made, then when all objects are made. It makes nothing else between the two stops. MOST bounds the number of
objects of a type, and LARGEST their sizes. Before the second stop a child writes a JSON object to the file TRUTH.
"types": {type: [count, bytes, buffers, spare]}, where ``bytes`` and ``buffers`` are the sizes that malloc and pymalloc
return for the objects and their buffers, and ``spare`` is how much larger these blocks may be: 16 bytes for each block
of malloc (a rest too small for a chunk), or the rest of a page if the block may have its own mapping. "managed": {type:
addresses} for classes whose instances may own one block more, with the values of their attributes. Python 2.7 runs it.
"""

import collections
import gc
import json
import os
import random
import sys

Point = collections.namedtuple("Point", "x y z")
OLD = sys.version_info[0] == 2
Unicode = type(u"")


class Slots(object):
    """A class with two slots and no dict."""

    __slots__ = ("left", "right")


class Plain(object):
    """A class whose dict does not exist until it is requested: its values are in a separate block."""

    def __init__(self, number):
        self.number = number
        self.other = None


class Mapping(dict):
    """A dict subclass with its own dict."""


class Text(Unicode):
    """A str that is not compact: its characters are in a separate block."""


class Number(float):
    """A float that no free list takes."""

    __slots__ = ()


class Raw(bytes):
    """A class of variable size; its dict slot is after the bytes."""


class Row(list):
    """A list subclass without a dict."""

    __slots__ = ()


class Buffer(bytearray):
    """A bytearray subclass."""


class Outer(object):
    """A class with a nested class."""

    class Inner(object):
        """A class whose qualified name has a dot."""

        __slots__ = ("weight",)


class Leaked(object):
    """A class with objects only in unreachable cycles."""

    __slots__ = ("partner",)


def local_class():
    """Return a class with ``<locals>`` in its qualified name."""

    class Local(object):
        __slots__ = ()

    return Local


Local = local_class()
# Since 3.13 an object's attributes may be after it in its own block.
INLINE_VALUES = 1 << 2 if sys.version_info >= (3, 13) else 0
# In 3.6 "debug" is "malloc_debug", and a debug build is "debug" by itself. A hook is a size and two words of padding,
# and up to 3.7 a number.
MODE = os.environ.get("PYTHONMALLOC") or ("debug" if hasattr(sys, "gettotalrefcount") else "")
WITHOUT_PYMALLOC = MODE.startswith("malloc") or (MODE == "debug" and (3, 6) <= sys.version_info < (3, 7))
HOOKS = 0 if "debug" not in MODE else 24 if sys.version_info >= (3, 8) else 32
FREE_THREADED = "t" in getattr(sys, "abiflags", "")
MIMALLOC = FREE_THREADED or MODE.startswith("mimalloc")
PAGE, MIN_MAPPED = 4096, 128 << 10
SIZES = (0, 1, 3, 7, 8, 20, 60, 64, 100, 400, 500, 513, 900, 3000, 20000)


def makers(generator, largest):
    """Return a function for each type that makes one object; the argument is its number."""
    sizes = [size for size in SIZES if size <= largest]

    def size():
        return generator.choice(sizes) + generator.randrange(16)

    def text():
        return generator.choice((u"x", u"\xe9", u"\u8a9e", u"\U0001d11e")) * (size() + 2)

    return {
        Slots: lambda i: Slots(),
        Plain: Plain,
        Mapping: lambda i: Mapping.fromkeys(range(size() // 100)),
        Point: lambda i: Point(i % 200, None, None),
        Text: lambda i: Text(text()),
        Number: lambda i: Number(generator.random()),
        Raw: lambda i: Raw(bytes(bytearray(size()))),
        Row: lambda i: Row(bytes(size())),
        Buffer: lambda i: Buffer(size()),
        Outer.Inner: lambda i: Outer.Inner(),
        Local: lambda i: Local(),
        Unicode: lambda i: text(),
        float: lambda i: generator.random(),
        bytes: lambda i: bytes(bytearray(size() + 2)),
        bytearray: lambda i: bytearray(size()),
        list: lambda i: [None] * size(),
        dict: lambda i: dict.fromkeys(range(size() // 100)),
        # Read 16 bytes too late, it looks like an instance of Plain; its blocks have the same size and are among
        # theirs.
        tuple: lambda i: (Plain, None),
        set: lambda i: set(range(size() % 250 if largest > 100 else size() // 20)),
    }


def leak(pairs):
    """Leave ``pairs`` unreachable cycles of two; the collector is off."""
    for _ in range(pairs):
        one, two = Leaked(), Leaked()
        one.partner, two.partner = two, one


def fill(holders, make, pairs):
    """Put an object into each place of each holder, kinds mixed, so that they share pools."""
    for i in range(max(map(len, holders.values()))):
        for kind, holder in holders.items():
            if i < len(holder):
                holder[i] = make[kind](i % 250)
    leak(pairs)


def is_chunk(size, of_malloc):
    """Return whether a request of ``size`` bytes is malloc's: beyond 512 bytes, and where Python 2 uses malloc
    itself."""
    return not MIMALLOC and (size + HOOKS > 512 or of_malloc or WITHOUT_PYMALLOC)


def allocated(size, of_malloc=False):
    """Return the bytes allocated for a request of ``size`` bytes: pymalloc's block, or glibc's chunk.

    pymalloc asks malloc for larger requests; since 3.6 malloc has hooks of its own.
    """
    if MIMALLOC:
        return block_of_mimalloc(size + HOOKS)
    if not is_chunk(size, of_malloc):
        return (size + HOOKS + 15) & ~15
    hooks = HOOKS if OLD or WITHOUT_PYMALLOC else 2 * HOOKS
    return max(32, (size + hooks + 8 + 15) & ~15)


def spare(size, of_malloc=False):
    """Return how many bytes the block for such a request may have beyond ``allocated``."""
    if not is_chunk(size, of_malloc):
        return 0
    return 16 if size + 2 * HOOKS < MIN_MAPPED else PAGE


def block_of_mimalloc(size):
    """Return mimalloc's block for a request: multiples of 16 up to 64 bytes, then four sizes to each power of two; from
    128 KiB on whole slices of 64 KiB."""
    if size <= 8:
        return 8
    if size <= 64:
        return (size + 15) & ~15
    if size > 128 << 10:
        return (size + 65535) & ~65535
    step = 1 << ((size - 1).bit_length() - 3)
    return (size + step - 1) // step * step


def inside(thing):
    """Return the bytes requested for an object itself, with the words before it (a GC head, a dict's place).

    PyType_GenericAlloc, which makes the instances of classes, adds one item and rounds up to 8.
    """
    kind = type(thing)
    before = sys.getsizeof(thing) - int(thing.__sizeof__())
    if kind.__flags__ & INLINE_VALUES:
        before += inline_values(thing)
    if kind in (Unicode, bytes, tuple) and not (OLD and kind is Unicode):
        return sys.getsizeof(thing)
    items = (len(thing) + 1) * kind.__itemsize__ if kind.__itemsize__ else 0
    return before + (kind.__basicsize__ + items + 7 & ~7)


def outside(thing):
    """Return the bytes requested for the block that an object owns, 0 if it has none."""
    if isinstance(thing, list) and FREE_THREADED and int(thing.__sizeof__()) > type(thing).__basicsize__:
        # The array itself knows for how many items it has room.
        return int(thing.__sizeof__()) - type(thing).__basicsize__ + 8
    if isinstance(thing, (list, dict, bytearray, set)):
        return int(thing.__sizeof__()) - type(thing).__basicsize__
    if OLD and isinstance(thing, Unicode):
        return (len(thing) + 1) * (4 if sys.maxunicode > 0xFFFF else 2)
    if isinstance(thing, Text):
        widest = max(map(ord, thing))
        return (len(thing) + 1) * (1 if widest < 256 else 2 if widest < 65536 else 4)
    return 0


def truth(holder):
    """Return count, bytes, buffers and their spare bytes of the objects of a holder."""
    own, owned = list(map(inside, holder)), [size for size in map(outside, holder) if size]
    # Python 2 puts 41 numbers into one block, and has the tables of lists, dicts and sets from malloc itself.
    place = (lambda size: size) if OLD and type(holder[0]) is float else allocated
    of_malloc = OLD and not isinstance(holder[0], Unicode)
    more = sum(spare(size) for size in own) + sum(spare(size, of_malloc) for size in owned)
    return [len(holder), sum(map(place, own)), sum(allocated(size, of_malloc) for size in owned), more]


def inline_values(thing):
    """Return the bytes of the attributes after an object: a byte and a value for each, and one null."""
    import ctypes

    capacity = bytearray(ctypes.string_at(id(thing) + type(thing).__basicsize__, 1))[0]
    return (capacity + 7 & ~7) + 8 * (capacity + 1)


def dicts_of(holders):
    """Return the attribute dicts of the instances in ``holders``; before 3.11 each has one."""
    own = [thing for kind, holder in holders.items() if kind is Plain for thing in holder]
    return [other for thing in own for other in gc.get_referents(thing) if type(other) is dict]


def name(kind):
    """Return module.qualname, without the module for builtins."""
    own = kind.__name__ if OLD else kind.__qualname__
    return own if kind.__module__ in ("builtins", "__builtin__") else "%s.%s" % (kind.__module__, own)


def managed(holders):
    """Return the addresses of the instances of classes with Py_TPFLAGS_MANAGED_DICT, if these have a block."""
    if sys.version_info < (3, 11) or INLINE_VALUES:
        return {}
    return {name(kind): [id(thing) for thing in holder] for kind, holder in holders.items() if kind.__flags__ & 1 << 4}


def tell(holders, pairs, path):
    """Write the truth in a child, because the child's own objects do not belong to this process."""
    child = os.fork()
    if child == 0:
        types = {name(kind): truth(holder) for kind, holder in holders.items()}
        own = dicts_of(holders)
        if own:
            types["dict"] = [one + more for one, more in zip(types["dict"], truth(own))]
        own = inside(Leaked())
        types["__main__.Leaked"] = [2 * pairs, 2 * pairs * allocated(own), 0, 2 * pairs * spare(own)]
        with open(path + ".part", "w") as file:
            json.dump({"types": types, "managed": managed(holders)}, file)
        os.rename(path + ".part", path)
        os._exit(0)
    os.waitpid(child, 0)


def wait(arguments=(0, 1)):
    """Read one byte from standard input: the parent's permission to continue.

    3.6 would make a tuple of two arguments, at the second stop in another chunk than at the first.
    """
    os.read(*arguments)


def main():
    """Prepare, stop, make, stop."""
    generator = random.Random(int(sys.argv[1]))
    most, largest, path = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    make = makers(generator, largest)
    gc.collect()
    gc.disable()
    holders = {kind: [None] * generator.randrange(1, most) for kind in make}
    pairs = generator.randrange(1, most)
    fill({kind: [None] * 100 for kind in make}, make, 0)
    # It may be the last to hold a str that was looked up as an attribute's name.
    sys._clear_type_cache()
    wait()
    fill(holders, make, pairs)
    tell(holders, pairs, path)
    wait()


if __name__ == "__main__":
    main()
