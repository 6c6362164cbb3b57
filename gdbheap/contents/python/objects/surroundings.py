"""Describe a container by the objects that refer to it: a metric with labels, or a handler that keeps log records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from gdbheap.contents.python.objects.reading import Allowance, dict_items, read_name
from gdbheap.contents.python.text.repr import BRIEF, Repr
from gdbheap.dataclass import dataclass
from gdbheap.errors import Fault, Unsupported
from gdbheap.graph.nodes import Node
from gdbheap.layout.cpython import OB_SIZE, OB_TYPE

__all__ = ["MAX_VALUES", "LogHandler", "WidestLabel", "log_handler", "widest_label"]

METRICS, LABEL_NAMES, CHILDREN = "prometheus_client.", "_labelnames", "_metrics"
MAX_LABELS, MAX_CHILDREN, ALL_KEYS = 32, 30_000, 1 << 20
# The most label values that are read, for all metrics together.
MAX_VALUES = 100_000
TEXTS = ("str", "bytes")
HANDLER, LOGGER, NAME = "logging.Handler", "logging.Logger", "name"
BUFFERING = "logging.handlers.BufferingHandler"
MAX_ATTRIBUTES, LONGEST = 32, 100


@dataclass(frozen=True)
class WidestLabel:
    """The label of a metric that has the most values: the number of values, and one of them as a Python literal.

    ``at_least``: not all children of the metric were read, so the label may have more values.
    """

    name: str
    values: int
    example: str
    at_least: bool


@dataclass(frozen=True)
class LogHandler:
    """A handler of logging: its class, the name of its logger or None, and whether it buffers records until it is
    flushed."""

    kind: str
    logger: str | None
    is_buffer: bool


def widest_label(texts: Repr, objects: Sequence[Node], left: Allowance) -> WidestLabel | None:
    """Return the label that has the most values, for the metric in which a chain of ``objects`` ends.

    The chain may also end in the metric's own dicts. Return None if there is no metric, or if a value is not text.
    ``left``: how many values may still be read, for all metrics together.
    """
    for node in reversed(objects):
        kind = texts.names.name(node.type)
        if kind.startswith(METRICS):
            try:
                return _widest(texts, node, left)
            except (Fault, Unsupported, OverflowError):
                return None
        if kind != "dict":
            return None
    return None


def _widest(texts: Repr, metric: Node, left: Allowance) -> WidestLabel | None:
    found = dict(islice(texts.attributes.of(texts.space, metric.address, metric.type), MAX_ATTRIBUTES))
    labels, children = found.get(LABEL_NAMES), found.get(CHILDREN)
    if not labels or not children:
        return None
    names = [_text(texts, each) for each in _items(texts, labels)]
    values: list[dict[str, int]] = [{} for _name in names]
    rows = dict_items(texts.space, texts.release, children, Allowance(ALL_KEYS))
    most = min(MAX_CHILDREN, left.left // max(len(names), 1))
    read = 0
    for key, _child in islice(rows, most):
        read += 1
        left.left -= len(names)
        for seen, each in zip(values, _items(texts, key)):
            value = _text(texts, each)
            if value is None:
                return None
            seen.setdefault(value, each)
    name, seen = max(zip(names, values), key=lambda pair: len(pair[1]), default=("", {}))
    if not name or not seen:
        return None
    example = texts.text(next(iter(seen.values())), BRIEF) or ""
    return WidestLabel(texts.disclosure.text(name), len(seen), example, read == most)


def _text(texts: Repr, address: int) -> str | None:
    """Return the beginning of a str or bytes; None for any other object."""
    kind = texts.kind(texts.space.word(address + texts.release.at(OB_TYPE)))
    is_text = kind is not None and kind.family in TEXTS
    return read_name(texts.space, texts.release, address, LONGEST) if is_text else None


def _items(texts: Repr, address: int) -> Iterator[int]:
    """Yield the items of a tuple, at most MAX_LABELS of them; nothing for any other object."""
    space, release = texts.space, texts.release
    if texts.names.name(space.word(address + release.at(OB_TYPE))) != "tuple":
        return
    for place in range(min(space.word(address + release.at(OB_SIZE)), MAX_LABELS)):
        yield space.word(address + release["tuple_items"] + place * space.machine.word)


def log_handler(texts: Repr, objects: Sequence[Node]) -> LogHandler | None:
    """Return the handler whose attribute is the last object of a chain, with its logger; None if there is none.

    The logger is the last one that comes before the handler in the chain.
    """
    above = [place for place, node in enumerate(objects[:-1]) if texts.names.name(node.type) != "dict"]
    if not above or not _is_a(texts, objects[above[-1]].type, HANDLER):
        return None
    loggers = [node for node in objects[: above[-1]] if _is_a(texts, node.type, LOGGER)]
    kind = texts.names.name(objects[above[-1]].type)
    is_buffer = _is_a(texts, objects[above[-1]].type, BUFFERING)
    return LogHandler(kind, _name_of(texts, loggers[-1]) if loggers else None, is_buffer)


def _name_of(texts: Repr, logger: Node) -> str | None:
    """Return a logger's name, hidden if contents of strings are hidden; None if the name cannot be read."""
    try:
        for name, value in islice(texts.attributes.of(texts.space, logger.address, logger.type), MAX_ATTRIBUTES):
            if name == NAME:
                found = _text(texts, value)
                return None if found is None else texts.disclosure.text(found)
    except (Fault, Unsupported, OverflowError):
        pass
    return None


def _is_a(texts: Repr, kind: int, name: str) -> bool:
    """Return whether a type or one of its bases has this name."""
    return name in texts.names.with_bases(kind)
