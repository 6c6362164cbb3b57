"""Parts of a target that are read once, on first use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from gdbheap import _native
from gdbheap.errors import GdbheapError, NotAPython, Unsupported
from gdbheap.targets.target import Target

__all__ = ["LazyPart", "Parts", "part"]

T = TypeVar("T")
TRUNCATED = "the core is truncated, and the data needed here may be cut off"


class Parts:
    """The parts of one target, each read on first use. A part that cannot be read raises the same error on each use."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._failures: dict[str, tuple[type[GdbheapError], str]] = {}

    def read(self, name: str, make: Callable[[], T]) -> T:
        """Return the part with this name, made by ``make``. If that failed before, raise the same error again."""
        if name in self._failures:
            kind, message = self._failures[name]
            raise kind(message)
        if self.target.refusal is not None:
            raise self.target.refusal
        try:
            return make()
        except _native.Fault as fault:
            missing = Unsupported(f"{name} cannot be read: no memory at {fault.args[0]:#x}")
            raise self._failed(name, missing) from fault
        except GdbheapError as error:
            raise self._failed(name, self._cut_short(error)) from error

    def has(self, attribute: str) -> bool:
        """Return whether the part with this attribute name has been read."""
        return attribute in vars(self)

    def _failed(self, name: str, error: GdbheapError) -> GdbheapError:
        """Remember an error, and return a new one of the same kind with the same text.

        The old error's traceback would refer to this object and keep the target's files open.
        """
        self._failures[name] = type(error), str(error)
        return type(error)(str(error))

    def _cut_short(self, error: GdbheapError) -> GdbheapError:
        """Return ``error``, with a note if a core is truncated.

        The note says that the cut-off part may have contained the data.
        """
        if not self.target.partial or isinstance(error, NotAPython) or str(error).startswith(TRUNCATED):
            return error
        return type(error)(f"{TRUNCATED}: {error}")


class LazyPart(Generic[T]):
    """A descriptor for a part of an object. Once the part is read, an attribute of the object replaces the
    descriptor.
    """

    def __init__(self, name: str, make: Callable[[Any], T]) -> None:
        self._name, self._make, self.__doc__ = name, make, make.__doc__

    def __set_name__(self, owner: type, attribute: str) -> None:
        self._attribute = attribute

    @overload
    def __get__(self, parts: None, owner: type) -> LazyPart[T]: ...
    @overload
    def __get__(self, parts: Parts, owner: type) -> T: ...
    def __get__(self, parts: Parts | None, owner: type) -> LazyPart[T] | T:
        if parts is None:
            return self
        found = parts.read(self._name, lambda: self._make(parts))
        vars(parts)[self._attribute] = found
        return found


def part(name: str) -> Callable[[Callable[[Any], T]], LazyPart[T]]:
    """Return a decorator that makes a method a ``LazyPart``. Error messages call the part ``name``."""
    return lambda make: LazyPart(name, make)
