"""Rests with secrets in memory, as every kind of string, of bytes and of key. argv: one token, how many pairs the
vault has, and "damaged" for a damaged chunk; the environment's TOKEN is one too. Each secret starts with the token.
Prints nothing; the file "places" has the addresses of some of them."""

import collections
import ctypes
import dataclasses
import json
import os
import signal
import sys
import threading

token, pairs = sys.argv[1], int(sys.argv[2])
names = ("one", "two", "four", "bytes", "bytearray", "view", "key", "bytes key", "tuple key", "member", "frozen")
secrets = {name: f"{token}{number:02}" for number, name in enumerate(names)}


class Text(str):
    """A class of strings."""


@dataclasses.dataclass
class Account:
    """An object with a secret in an attribute."""

    login: object
    number: int = 7


class Linked:
    """An object that is found through others."""

    def __init__(self, value):
        self.value = value


Point = collections.namedtuple("Point", "name x")


class Row(tuple):
    """Rows of a table, whose column names are secrets."""

    _fields = (token + " column", "x")


def made(name, suffix=""):
    """Return a new string with the secret for ``name``."""
    return "".join([secrets[name], suffix])


def worker(ready):
    """Run a thread whose local variables are secrets."""
    local = {made("key", "/thread"): Linked(made("one", "/thread"))}
    chunk = made("bytes", "/thread").encode()
    ready.set()
    threading.Event().wait()
    return local, chunk


class Holder:
    """The holder of the secrets."""


def failure():
    """Return an exception with a message and a traceback."""
    try:
        raise ValueError(made("one", " is wrong"), made("two", "\u20ac"))
    except ValueError as error:
        return error


held = Holder()
held.one = made("one", "\u00e9")
held.two = made("two", "\u6f22")
held.four = made("four", "\U0001f600")
held.ascii = made("one", "/ascii")
held.text = Text(made("one", "/class"))
held.bytes = made("bytes").encode()
held.bytearray = bytearray(made("bytearray").encode())
held.view = memoryview(bytearray(made("view").encode() * 100))
held.cache = {made("key"): Linked(bytearray(300 << 10)), made("bytes key").encode(): Linked([1])}
held.tuples = {(made("tuple key"), 1): Linked([2]), 4_111_111: Linked([3])}
held.members = {made("member"), made("member", "/2")}
held.frozen = frozenset([made("frozen")])
held.queue = collections.deque([made("one", "/queue")])
held.point = Point(made("one", "/point"), 1)
held.row = Row((1, 2))
held.account = Account(made("one", "/account"))
held.error = failure()
held.twice = [made("two", "/twice") for _ in range(3)]
held.nested = [{made("key", "/nested"): [{made("key", "/deep"): Linked(bytearray(200 << 10))}]}]
setattr(held, made("key", " no identifier"), Linked(bytearray(200 << 10)))
held.slack = {made("key", "/slack"): list(range(1000)) * 20}

path = os.path.join(os.getcwd(), made("one", ".txt"))
held.file = open(path, "w", encoding="utf-8")
held.file.write(made("one", "/file"))

library = ctypes.CDLL(None)
library.malloc.restype = library.strdup.restype = ctypes.c_void_p
held.addresses = [library.strdup(f"{secrets['bytes']}/malloc {number} ".encode() * 40) for number in range(50)]
holes = [library.malloc(3000) for _number in range(2000)]
for address in holes[::2]:
    library.free(ctypes.c_void_p(address))

ready = threading.Event()
threading.Thread(target=worker, args=(ready,), daemon=True).start()
ready.wait()

# The vault is filled last: a table that was full long ago is not leak-like.
held.vault = {made("key", "/vault"): {number: Text(made("one", f"/{number}")) for number in range(pairs)}}

places = {name: id(getattr(held, name)) for name in ("one", "two", "four", "ascii", "text", "bytes", "bytearray")}
more = (
    "cache",
    "tuples",
    "members",
    "frozen",
    "queue",
    "point",
    "row",
    "account",
    "error",
    "nested",
    "vault",
    "view",
    "slack",
)
places.update({name: id(getattr(held, name)) for name in more})
places["reached"] = id(next(iter(held.cache.values())))
places["large"] = id(next(iter(held.cache.values())).value)
places["deep"] = id(next(iter(next(iter(held.nested[0].values()))[0].values())))
places["odd"] = id(next(iter(held.tuples.values())))
places["number"] = id(held.tuples[4_111_111])
places["attribute"] = id(vars(held)[made("key", " no identifier")])
places["instance"] = id(held)
places["text of C"] = held.addresses[7]
places["file"] = id(held.file)
with open("places", "w") as file:
    json.dump(places, file)
del file

# A neighbour wrote beyond its end: the size of a chunk is eight characters.
if sys.argv[3:] == ["damaged"]:
    blocks = [library.malloc(5000) for _number in range(50)]
    before = next(block for block in blocks if block + 5008 in blocks)
    ctypes.memmove(before + 5000, token.encode(), 8)

signal.pause()
