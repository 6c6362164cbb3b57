"""Hold random nested values and write down each one's address and repr: values.py SEED COUNT TRUTH.

TRUTH is JSON: a list of [address, text]. The text is repr()'s; classes of this program show their instances' attributes
there.
"""

from __future__ import annotations

import collections
import collections.abc
import json
import random
import signal
import struct
import sys
from typing import Any, Callable

Pair = collections.namedtuple("Pair", "left right")
open_now: list[int] = []


def attributes(thing: object, slots: tuple[str, ...] = ()) -> str:
    """Return ``name=value`` of the slots that are set and of the dict, with commas, and dots for the object itself."""
    if id(thing) in open_now:
        return "..."
    open_now.append(id(thing))
    pairs = [(name, getattr(thing, name)) for name in slots if hasattr(thing, name)]
    pairs += getattr(thing, "__dict__", {}).items()
    text = ", ".join(f"{name if name.isidentifier() else repr(name)}={value!r}" for name, value in pairs)
    open_now.pop()
    return text


class Node:
    """A plain class."""

    def __repr__(self) -> str:
        words = attributes(self, getattr(type(self), "ALL_SLOTS", ()))
        plain = object.__repr__(self)
        return f"{plain[:-1]}: {words}>" if words else plain

    def method(self) -> None:
        """Exist as a method to be bound."""


class Slotted(Node):
    """A class with a dict from its base, and slots."""

    __slots__ = ("zeta", "alpha")
    ALL_SLOTS = ("alpha", "zeta")


class Bare:
    """A class with slots alone."""

    __slots__ = ("left", "right", "__weakref__")
    ALL_SLOTS = ("left", "right")
    __repr__ = Node.__repr__


class Text(str):
    """A str with its characters in a separate block."""

    def __repr__(self) -> str:
        return own(self, str.__repr__(self))


class Number(int):
    """An int subclass, whose objects have an attribute dict."""

    def __repr__(self) -> str:
        return own(self, int.__repr__(self))


class Items(list):  # type: ignore[type-arg]
    """A list subclass, whose objects have an attribute dict."""

    def __repr__(self) -> str:
        return own(self, list.__repr__(self))


class Record(tuple):  # type: ignore[type-arg]
    """A tuple with a dict, after any number of items."""

    def __repr__(self) -> str:
        return own(self, tuple.__repr__(self))


class Table(dict):  # type: ignore[type-arg]
    """A dict subclass, whose objects have an attribute dict."""

    def __repr__(self) -> str:
        return own(self, dict.__repr__(self))


class Group(set):  # type: ignore[type-arg]
    """A set subclass, whose objects have an attribute dict."""

    def __repr__(self) -> str:
        return own(self, "{" + ", ".join(map(repr, self)) + "}" if self else "")


class Failure(Exception):
    """An exception class of this program."""


def own(thing: object, text: str) -> str:
    """Return the text of an instance of a built-in type's subclass."""
    kind = type(thing)
    words = attributes(thing)
    return f"{kind.__module__}.{kind.__qualname__}({', '.join(filter(None, (text, words)))})"


ALPHABETS = ("ab c\"'\\\n\t\x00\x7f", "é\xa0ÿ\x80ab", "Ωж\u2028漢\ud800\udc00x", "😀𝔘漢aé\U000e0001")


def text_of(generator: random.Random) -> str:
    """Return a str of random kind; short, or longer than the limit."""
    size = generator.choice((0, 1, 5, 20, 60, generator.randrange(250)))
    return "".join(generator.choices(generator.choice(ALPHABETS), k=size))


def integer(generator: random.Random) -> int:
    """Return an int of any size and sign."""
    bits = generator.choice((1, 8, 29, 30, 31, 59, 60, 61, 64, 120, 600, generator.randrange(1, 3000)))
    edge = generator.choice((generator.getrandbits(bits), (1 << bits) - 1, 1 << bits, 0))
    return generator.choice((1, -1)) * edge


def number(generator: random.Random) -> float:
    """Return a float of any bits."""
    return float(struct.unpack("<d", generator.getrandbits(64).to_bytes(8, "little"))[0])


def raw(generator: random.Random) -> bytes:
    """Return random bytes."""
    size = generator.choice((0, 1, 7, 40, generator.randrange(300)))
    return bytes(generator.randrange(256) for _ in range(size))


def array(generator: random.Random) -> bytearray:
    """Return a bytearray, sometimes one that begins after the start of its memory."""
    found = bytearray(raw(generator))
    del found[: generator.choice((0, 0, 3))]
    return found


LEAVES: tuple[Callable[[random.Random], Any], ...] = (
    text_of,
    integer,
    integer,
    number,
    raw,
    array,
    lambda g: complex(number(g), number(g)),
    lambda g: g.choice((None, True, False, Ellipsis, NotImplemented, float("nan"), -0.0, float("inf"), 1e16)),
    lambda g: g.choice((int, Node, Pair, OSError, collections.OrderedDict, collections.abc.Sized, type, Outer.Inner)),
    lambda g: g.choice((len, [].append, json, text_of.__code__, Table().update, struct.pack)),
    lambda g: Text(text_of(g)),
    lambda g: with_attributes(g, Number(integer(g)), 0),
    lambda g: [text_of, number, Outer.Inner.method, LEAVES[0]][g.randrange(4)].__code__,
)


class Outer:
    """A class for nested names."""

    class Inner:
        """A class in a class."""

        def method(self) -> None:
            """Exist as a method with its code."""


def hashable(generator: random.Random) -> Any:
    """Return a value that can be a key."""
    kind = generator.randrange(6)
    if kind == 0:
        return (integer(generator), text_of(generator)[:9])
    if kind == 1:
        return frozenset(generator.randrange(40) for _ in range(generator.randrange(4)))
    return (integer, lambda g: text_of(g)[:20], lambda g: raw(g)[:9], lambda g: f"key{g.randrange(99)}")[kind - 2](
        generator
    )


def with_attributes(generator: random.Random, thing: Any, depth: int) -> Any:
    """Return ``thing`` with a few attributes, some deleted again, and sometimes a requested dict."""
    count = generator.choice((0, 1, 3, 3, 8, 40))
    names = [f"a{n}" for n in range(count)]
    generator.shuffle(names)
    for name in names:
        setattr(thing, name, value(generator, depth))
    for name in generator.sample(names, generator.choice((0, 0, len(names) // 3))):
        delattr(thing, name)
    if generator.randrange(3) == 0:
        vars(thing)
    if generator.randrange(6) == 0:
        thing.__dict__ = {text_of(generator)[:5] or "x": 1, 5: 2} if generator.randrange(2) else {}
        vars(thing).pop(5, None)
    return thing


def slotted(generator: random.Random, thing: Any, depth: int) -> Any:
    """Return ``thing`` with some of its slots set."""
    for name in type(thing).ALL_SLOTS:
        if generator.randrange(3):
            setattr(thing, name, value(generator, depth))
    return thing


def punched(generator: random.Random, found: Any) -> Any:
    """Return a dict or a set from which entries were removed."""
    for key in generator.sample(list(found), generator.choice((0, 0, len(found) // 2, len(found)))):
        found.pop(key) if isinstance(found, dict) else found.discard(key)
    return found


def container(generator: random.Random, depth: int) -> Any:
    """Return a container of random kind, with values of less depth."""
    count = generator.choice((0, 1, 2, 3, 5, generator.randrange(70) if depth < 2 else 4))
    items = [value(generator, depth - 1) for _ in range(count)]
    keys = [hashable(generator) for _ in range(count)]
    makers: tuple[Callable[[], Any], ...] = (
        lambda: items,
        lambda: tuple(items),
        lambda: punched(generator, dict(zip(keys, items))),
        lambda: punched(generator, {f"k{n}": item for n, item in enumerate(items)}),
        lambda: punched(generator, set(keys)),
        lambda: frozenset(keys),
        lambda: Pair(items, keys),
        lambda: with_attributes(generator, Node(), depth - 1),
        lambda: slotted(generator, with_attributes(generator, Slotted(), depth - 1), depth - 1),
        lambda: slotted(generator, Bare(), depth - 1),
        lambda: with_attributes(generator, Items(items), depth - 1),
        lambda: with_attributes(generator, Record(items), depth - 1),
        lambda: with_attributes(generator, Table(zip(keys, items)), depth - 1),
        lambda: with_attributes(generator, Group(keys), depth - 1),
        lambda: Failure(*items),
        lambda: KeyError(*items),
        lambda: cyclic(generator, items),
    )
    return generator.choice(makers)()


def cyclic(generator: random.Random, items: list[Any]) -> Any:
    """Return a value that contains itself."""
    kind = generator.randrange(4)
    if kind == 0:
        items.append(items)
        return items
    if kind == 1:
        ring: dict[str, Any] = {"items": items}
        ring["self"] = ring
        return ring
    if kind == 2:
        found = (items,)
        items.append(found)
        return found
    node: Any = Node()
    node.me, node.items = node, items
    items.append(node)
    return node


def value(generator: random.Random, depth: int) -> Any:
    """Return a value of at most that depth."""
    if depth <= 0 or generator.randrange(3) == 0:
        return generator.choice(LEAVES)(generator)
    return container(generator, depth)


def main() -> None:
    """Make the values, write the truth, pause."""
    generator = random.Random(int(sys.argv[1]))
    kept = [value(generator, generator.randrange(4)) for _ in range(int(sys.argv[2]))]
    truth = [(id(thing), repr(thing)) for thing in kept]
    with open(sys.argv[3], "w") as file:
        json.dump(truth, file)
    signal.pause()
    del kept


if __name__ == "__main__":
    main()
