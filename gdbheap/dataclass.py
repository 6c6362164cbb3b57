"""Decorate data classes so that their methods are made only when the first instance is created.

A command creates instances of a third of the data classes that it imports. Making the methods of all of them would take
a tenth of the processor time of a short command. For the same reason, the methods that compare and print are the same
functions in all classes: ``dataclasses`` need not compile them for each class.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    import dataclasses
    from reprlib import recursive_repr
    from threading import RLock

    LOCK = RLock()
    FIELDS = "__dataclass_fields__"

    class _Fields:
        """Stands in for the fields of a class whose methods are not made yet. Reading this attribute makes the methods,
        and replaces the attribute by the fields.
        """

        def __init__(self, make):
            self.make = make

        def __get__(self, instance, cls):
            self.make()
            return getattr(cls, FIELDS)

    def _new(kind, /, *_arguments, **_named):
        return object.__new__(kind)

    def _values(self, use):
        """Return the values of the fields for which ``use(field)`` is true."""
        return tuple(getattr(self, field.name) for field in dataclasses.fields(self) if use(field))

    def _equals(self, other):
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self, _is_compared) == _values(other, _is_compared)

    def _hash(self):
        return hash(_values(self, _is_hashed))

    def _is_compared(field):
        return field.compare

    def _is_hashed(field):
        return field.compare if field.hash is None else field.hash

    @recursive_repr()
    def _shown(self):
        values = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in dataclasses.fields(self) if one.repr)
        return f"{type(self).__qualname__}({values})"

    def _make(cls, **options):
        """Add to ``cls`` the methods that ``dataclasses.dataclass`` adds."""
        if set(options) - {"frozen"}:
            dataclasses.dataclass(cls, **options)
            return
        own = vars(cls)
        has_hash = own.get("__hash__") is not None
        methods = {} if "__repr__" in own else {"__repr__": _shown}
        if "__eq__" not in own:
            methods["__eq__"] = _equals
        if not has_hash:
            methods["__hash__"] = _hash if options.get("frozen") else None
        dataclasses.dataclass(cls, eq=False, repr=False, **options)
        for name, method in methods.items():
            setattr(cls, name, method)

    def dataclass(cls=None, **options):
        """Decorate a class as ``dataclasses.dataclass`` does, but make its methods later."""
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        if "__new__" in vars(cls) or "slots" in options:
            return dataclasses.dataclass(cls, **options)

        def make():
            with LOCK:
                if isinstance(vars(cls)[FIELDS], _Fields):
                    _make(cls, **options)
                    # If __new__ were deleted instead, object.__new__ would refuse arguments.
                    cls.__new__ = _new

        def __new__(kind, /, *_arguments, **_named):
            make()
            return object.__new__(kind)

        setattr(cls, FIELDS, _Fields(make))
        cls.__new__ = __new__
        return cls
