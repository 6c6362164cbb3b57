"""Rows of one kind as a sequence, a data frame, an Arrow table or an HTML table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from itertools import islice
from typing import Any, Generic, TypeVar, overload

from gdbheap.errors import one_line
from gdbheap.export.arrow import missing
from gdbheap.report.text.numbers import size_text
from gdbheap.report.text.style import Style
from gdbheap.report.text.tables import Column, table
from gdbheap.text import printable

__all__ = ["Table"]

Row = TypeVar("Row")
MAX_SHOWN, LONGEST = 20, 80
# Columns whose numbers are shown as sizes.
SIZES = ("bytes", "buffers", "free", "in_use", "own", "resident", "retained", "rss", "size", "swapped", "virtual")
ADDRESSES = ("address", "end")
# The type of a column, by the first word of a field's annotation.
KINDS = {"int": "int64", "float": "float64", "bool": "bool", "str": "string"}


class Table(Sequence[Row], Generic[Row]):
    """Rows of one kind, in order: a sequence whose slices are tables.

    ``Table(rows)`` takes any records of one class, such as those that ``gdbheap.sample`` yields. ``rows``: the list of
    records; ``columns``: the names of their plain columns. A table has at most as many rows as were requested; ``more``
    is the number of rows that were left out."""

    def __init__(self, rows: Iterable[Row], kind: type[Any] | None = None, matching: int = 0) -> None:
        self.rows: list[Row] = list(rows)
        self._kind: type[Any] | None = type(self.rows[0]) if kind is None and self.rows else kind
        self.more: int = max(0, matching - len(self.rows))

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> Table[Row]: ...
    def __getitem__(self, place: int | slice) -> Row | Table[Row]:
        if isinstance(place, slice):
            return Table(self.rows[place], self._kind)
        return self.rows[place]

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def columns(self) -> list[str]:
        """The names of the columns. If a row contains a record, the names of this record's columns begin with its name
        (``before_size``)."""
        return list(self._types())

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a column for each of ``columns``. Raises Unsupported if pandas is not
        installed."""
        try:
            import pandas
        except ImportError:
            raise missing("to_pandas()", "pandas", "pandas") from None
        types, cells = self._types(), self._cells()
        # Integers stay integers even if some are unknown.
        return pandas.DataFrame(
            {
                name: pandas.array(cells[name], dtype="Int64")
                if kind == "int64" and None in cells[name]
                else pandas.Series(cells[name], dtype=kind if kind in ("int64", "bool") else None)
                for name, kind in types.items()
            }
        )

    def to_arrow(self) -> Any:
        """Return a ``pyarrow.Table`` with a column for each of ``columns``. Raises Unsupported if pyarrow is not
        installed."""
        try:
            import pyarrow
        except ImportError:
            raise missing("to_arrow()", "pyarrow", "arrow") from None
        cells = self._cells()
        types = {
            name: pyarrow.list_(pyarrow.string()) if kind == "list" else pyarrow.type_for_alias(kind)
            for name, kind in self._types().items()
        }
        return pyarrow.table({name: pyarrow.array(cells[name], kind) for name, kind in types.items()})

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a dict for each row, with a key for each of ``columns``."""
        names, cells = self.columns, self._cells()
        return [dict(zip(names, row)) for row in zip(*(cells[name] for name in names))]

    def __repr__(self) -> str:
        names = self.columns
        if not self.rows:
            return "no rows"
        shown = [[_shown(name, value) for name, value in row.items()] for row in self[:MAX_SHOWN].to_dicts()]
        kinds = self._types()
        heads = [Column(name, kinds[name] in ("string", "list")) for name in names]
        lines = table(heads, shown, Style())
        return lines + (f"\n… {len(self.rows) - MAX_SHOWN:,} more" if len(self.rows) > MAX_SHOWN else "")

    def _repr_html_(self) -> str:
        names = self.columns
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_shown(name, value))}</td>" for name, value in row.items()) + "</tr>"
            for row in self[:MAX_SHOWN].to_dicts()
        )
        more = f"<p>… {len(self.rows) - MAX_SHOWN:,} more</p>" if len(self.rows) > MAX_SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _types(self) -> dict[str, str]:
        return {} if self._kind is None else types_of(self._kind)

    def _cells(self) -> dict[str, list[Any]]:
        """Return the cells of each column. Strings are made printable, because a target's names may not be valid
        text."""
        found: dict[str, list[Any]] = {name: [] for name in self.columns}
        for row in self.rows:
            for name, value in cells_of(row, found):
                found[name].append(printable(value) if isinstance(value, str) else value)
        return found


def types_of(kind: type[Any]) -> dict[str, str]:
    """Return {column: int64, float64, bool, string or list} for a class of rows.

    Columns are its plain fields, the fields of records within it, and the properties named in ``derived``."""
    found: dict[str, str] = {}
    within: dict[str, type[Any]] = getattr(kind, "within", {})
    for each in fields(kind):
        if each.name in within:
            found.update({f"{each.name}_{name}": of for name, of in types_of(within[each.name]).items()})
        elif not each.name.startswith("_"):
            found[each.name] = _type_of(str(each.type))
    found.update({name: _type_of(text) for name, text in getattr(kind, "derived", {}).items()})
    return found


def _type_of(annotation: str) -> str:
    return next((kind for word, kind in KINDS.items() if annotation.startswith(word)), "list")


def cells_of(row: Any, names: Iterable[str]) -> Iterable[tuple[str, Any]]:
    """Yield (column, value) of a row. If a record within the row is absent, the values of its columns are None."""
    for name in names:
        if hasattr(row, name):
            value = getattr(row, name)
            yield name, list(value) if isinstance(value, (list, tuple)) else value
        else:
            outer, _, inner = name.partition("_")
            record = getattr(row, outer)
            yield name, getattr(record, inner) if is_dataclass(record) else None


def _shown(name: str, value: Any) -> str:
    """Return a cell of a table as text: a size, an address, a number, or one line of at most LONGEST characters."""
    last = name.rpartition("_")[2]
    if value is None:
        return "?"
    if isinstance(value, (list, tuple)):
        return one_line("; ".join(map(str, islice(value, 3))), LONGEST)
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{value:.3f}" if isinstance(value, float) else one_line(value, LONGEST)
    if last in ADDRESSES:
        return f"{value:#x}"
    return size_text(value) if last in SIZES or name in SIZES else f"{value:,}"
