"""Decorate data classes so that their methods are made only when the first instance is created.

A command creates instances of a third of the data classes that it imports. Making the methods of all of them would take
a tenth of the processor time of a short command.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from threading import RLock

    LOCK = RLock()
    FIELDS = "__dataclass_fields__"

    class _Fields:
        """Stands in for the fields of a class whose methods are not made yet. Reading it makes the methods, and
        replaces it with the fields.
        """

        def __init__(self, make):
            self.make = make

        def __get__(self, instance, cls):
            self.make()
            return getattr(cls, FIELDS)

    def _new(kind, /, *_arguments, **_named):
        return object.__new__(kind)

    def dataclass(cls=None, **options):
        """Decorate a class as ``dataclasses.dataclass`` does, but make its methods later."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if "__new__" in vars(cls) or "slots" in options:
            return dataclasses.dataclass(cls, **options)

        def make():
            with LOCK:
                if isinstance(vars(cls)[FIELDS], _Fields):
                    dataclasses.dataclass(cls, **options)
                    # A class from which __new__ is removed again takes no arguments.
                    cls.__new__ = _new

        def __new__(kind, /, *_arguments, **_named):
            make()
            return object.__new__(kind)

        setattr(cls, FIELDS, _Fields(make))
        cls.__new__ = __new__
        return cls
