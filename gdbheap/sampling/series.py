"""The file of a series: JSON lines, or CSV with a header. Each sample and each event is a row.

Each row is one write. So if the recorder is killed, only the last row can be incomplete, and the reader drops such a
row. docs/recording.md describes both formats.
"""

from __future__ import annotations

import csv
import fcntl
import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import is_dataclass, replace
from typing import Any, BinaryIO, cast

from gdbheap.answers.accounting.records import check_target, from_json, to_json
from gdbheap.documents import bounded, finite, is_time, parsed, whole
from gdbheap.errors import EXHAUSTED, GdbheapError, UsageError, one_line
from gdbheap.files import PRIVATE, HeldFolder, NewFile, not_written, open_regular, open_to_append, open_to_read
from gdbheap.host.headroom import RoomLeft
from gdbheap.sampling.sample import (
    ArenaSample,
    ClassSample,
    MallocSample,
    MmappedSample,
    PoolsSample,
    Sample,
    Series,
    SeriesEvent,
)
from gdbheap.text import csv_cell, json_text

__all__ = ["CSV", "JSONL", "STANDARD_OUTPUT", "SeriesFile", "form_of", "is_series", "read"]

CSV, JSONL = FORMS = ("csv", "jsonl")
FORMAT = "gdbheap series"
# A file with a larger schema number is refused.
NUMBER = 1
SERIES, SAMPLE, EVENT = "series", "sample", "event"
STANDARD_OUTPUT = "-"
# An arena takes about a hundred bytes of a line, and there may be eight arenas for each processor.
MAX_LINE_BYTES = 8 << 20
# After this many bytes of lines the memory that is left is checked again.
AT_ONCE = 1 << 20
NEWLINE = 10
# A limit for figures, above the bytes of any address space. A picture's numbers have 64 bits.
MAX_FIGURE = 1 << 62
PLAIN = (
    "rss", "pss", "anonymous", "file", "shared", "swap", "brk", "minor_faults", "major_faults", "threads", "stopped",
)  # fmt: skip
# The columns after a sample's plain fields: sums for human readers, and the details in the last columns.
SUMS = ("system", "in_use", "trim", "mmapped_bytes", "mmapped_count", "mmapped_peak")
OF_POOLS = ("pool_arenas", "pool_bytes", "pools", "free_pools", "pool_used")
LISTS = ("doubtful", "arenas", "allocator", "classes", "odd")
COLUMNS = ("time", "offset", "pid", "event", *PLAIN, *SUMS, *OF_POOLS, *LISTS, "detail")
HEADING = ",".join(COLUMNS[:4])
BEGINNING = b'{"kind":"series",'
GZIP = b"\x1f\x8b"
MARKS = ("arenas", "mmapped", "pools", "values")


def form_of(path: str) -> str:
    """Return the format that a file's ending names; CSV for standard output. Raises UsageError for another ending."""
    form = os.path.splitext(path)[1][1:].lower()
    if path == STANDARD_OUTPUT:
        return CSV
    if form not in FORMS:
        raise UsageError(f"{one_line(path)}: give a file that ends in .csv or .jsonl, or - (CSV to standard output)")
    return form


class SeriesFile:
    """A file to which rows are appended. Other processes can read it meanwhile; only one gdbheap writes it.

    An older recording is continued: another header is appended, after an incomplete last row is removed. If ``replace``
    is true, or the file is empty, a new file replaces it once the header is written.

    ``began``: when the file's first row was written, in seconds since 1970.
    ``base``: the offset of the file's beginning within the recording, in seconds. It is subtracted from the offset of
    each row.
    ``folder``: the open folder in which the file is made, None for the folder in the path.
    ``descriptor``: the file's descriptor, for reading and writing.

    Raises UsageError if the file cannot be written at all, GdbheapError if writing fails later.
    """

    def __init__(
        self,
        path: str,
        series: Series,
        csv_safe: bool = False,
        mode: int = PRIVATE,
        replace: bool = True,
        folder: HeldFolder | None = None,
    ) -> None:
        self.path, self.form, self._is_safe = path, form_of(path), csv_safe
        self.rows = 0
        self.size = 0
        self.began, self.base = series.time, 0.0
        self._new: NewFile | None = None
        older = None if replace or path == STANDARD_OUTPUT else _older(path, self.form)
        if older is None:
            self._new = self._open(mode, folder)
        self.descriptor = self._new.descriptor if self._new is not None else open_to_append(path)
        # Some file systems count no names.
        self._is_named = path != STANDARD_OUTPUT and os.fstat(self.descriptor).st_nlink > 0
        try:
            self._begin(series, older)
        except BaseException:
            self.close()
            raise

    def _begin(self, series: Series, older: Series | None) -> None:
        if self.path != STANDARD_OUTPUT:
            _lock(self.descriptor, self.path)
        header = {"kind": SERIES, "format": FORMAT, "schema": NUMBER, **_about(series)}
        if older is not None:
            self.began = older.time
            self.size = _cut(self.descriptor)
        if self.form == CSV:
            if older is None:
                self._write(_line(COLUMNS))
            header = _row_of_series(header)
        self._put(header)
        try:
            if self._new is not None:
                self._new.put()
        except OSError as error:
            raise not_written(self.path, error) from None

    def _open(self, mode: int, folder: HeldFolder | None) -> NewFile:
        try:
            return NewFile("/dev/stdout" if self.path == STANDARD_OUTPUT else self.path, mode, folder)
        except (OSError, ValueError) as error:
            raise not_written(self.path, error) from None

    def add(self, row: Sample | SeriesEvent) -> None:
        """Write a sample or an event as the next row."""
        self._check_place()
        if self.base:
            row = replace(row, offset=round(row.offset - self.base, 6))
        if isinstance(row, Sample):
            self._put({"kind": SAMPLE, **to_json(row)} if self.form == JSONL else _row_of_sample(row))
            self.rows += 1
        elif self.form == JSONL:
            known = {key: value for key, value in vars(row).items() if value is not None}
            self._put({**known, "event": row.kind, "kind": EVENT})
        else:
            self._put(_row_of_event(row))

    def _check_place(self) -> None:
        """Raise GdbheapError if the file has been removed: nobody could read its rows."""
        if self._is_named and not os.fstat(self.descriptor).st_nlink:
            self._is_named = False
            raise GdbheapError(f"{one_line(self.path)} was removed while gdbheap recorded; its samples are lost")

    def _put(self, row: Mapping[str, Any]) -> None:
        if self.form == JSONL:
            self._write(json_text(row, to_json, (",", ":")) + "\n")
        else:
            self._write(_line(csv_cell(row.get(name, ""), self._is_safe) for name in COLUMNS))

    def _write(self, text: str) -> None:
        """Write the whole text or nothing: if the disk is full, the part already written is removed again."""
        data = text.encode("utf-8", "surrogateescape")
        done = 0
        try:
            while done < len(data):
                done += os.write(self.descriptor, data[done:])
        except BrokenPipeError:
            raise
        except OSError as error:
            with suppress(OSError):
                _take_back(self.descriptor, done)
            reason = EXHAUSTED.get(error.errno or 0, error.strerror or str(error))
            rows = "sample" if self.rows == 1 else f"{self.rows:,} samples"
            raise GdbheapError(
                f"{one_line(self.path)} could not be completed ({reason}); its first {rows} can be read"
            ) from None
        self.size += len(data)

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        number, self.descriptor = self.descriptor, -1
        with suppress(OSError):
            if self._new is not None:
                self._new.close()
            elif number >= 0:
                os.close(number)


def _older(path: str, form: str) -> Series | None:
    """Return the header of a recording in this format that can be continued; None if there is no file, or an empty
    one.

    Raises UsageError for any other file: neither a recording of another version nor another file must be lost.
    """
    first = second = b""
    with suppress(OSError, ValueError, UsageError), open_regular(path) as stream:
        first, second = stream.readline(MAX_LINE_BYTES), stream.readline(MAX_LINE_BYTES)
        stream.seek(0)
        found = next(_documents(path, _Lines(path, stream)), None)
        if first.startswith(b"{") == (form == JSONL):
            return _header(path, found)
    if first.startswith((HEADING.encode(), BEGINNING)):
        if second:
            raise UsageError(
                f"{one_line(path)} is a recording that cannot be continued (another version or format, or damaged): "
                "give another file, or --replace"
            )
    elif not any(beginning.startswith(first) for beginning in (HEADING.encode(), BEGINNING)):
        # A file that was cut in its first line has no samples.
        raise UsageError(f"{one_line(path)} is not a recording: give another file, or --replace")
    return None


def _lock(descriptor: int, path: str) -> None:
    """Lock a file until it is closed. Raises UsageError if another gdbheap writes it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"{one_line(path)} is being written by another gdbheap record: give another file") from None
    except OSError:
        # A file system without locks.
        return


def _cut(descriptor: int) -> int:
    """Remove an incomplete row at the end of a file, and move to the end. Return the file's size in bytes."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    tail = os.pread(descriptor, MAX_LINE_BYTES, max(0, end - MAX_LINE_BYTES))
    whole_size = end - len(tail) + tail.rfind(b"\n") + 1
    os.ftruncate(descriptor, whole_size)
    return os.lseek(descriptor, 0, os.SEEK_END)


def _take_back(descriptor: int, size: int) -> None:
    """Remove the last ``size`` bytes written to a file, unless others have written after them. Raises OSError."""
    end = os.lseek(descriptor, 0, os.SEEK_CUR)
    if os.fstat(descriptor).st_size == end:
        os.ftruncate(descriptor, end - size)


def _line(cells: Iterable[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


def _about(series: Series) -> dict[str, Any]:
    """Return the fields of the series for the file's header."""
    return {key: value for key, value in vars(series).items() if key not in ("samples", "events", "cut")}


# CSV.


def _cell(value: object) -> object:
    return "" if value is None else int(value) if isinstance(value, bool) else value


def _packed(*values: object) -> str:
    return ":".join(str(_cell(value)) for value in values)


def _row_of_series(header: Mapping[str, Any]) -> dict[str, Any]:
    return {"time": header["time"], "offset": 0, "event": SERIES, "detail": json_text(header)}


def _row_of_event(event: SeriesEvent) -> dict[str, Any]:
    own = {key: value for key, value in vars(event).items() if value is not None}
    row = {"time": own.pop("time"), "offset": own.pop("offset"), "event": own.pop("kind"), "pid": own.pop("pid", "")}
    return {**row, "detail": json_text(own) if own else ""}


def _row_of_sample(sample: Sample) -> dict[str, Any]:
    row: dict[str, Any] = {name: _cell(getattr(sample, name)) for name in ("time", "offset", "pid", *PLAIN)}
    malloc, pools = sample.malloc, sample.pools
    row["doubtful"] = " ".join(_doubts(sample))
    if malloc is not None:
        row.update((name, _cell(getattr(malloc, name))) for name in SUMS[:3])
        row["arenas"] = " ".join(_packed(*vars(arena).values()) for arena in malloc.arenas) or MARKS[0]
        if malloc.mmapped is not None:
            mmapped = malloc.mmapped
            row.update(mmapped_bytes=mmapped.bytes, mmapped_count=mmapped.count, mmapped_peak=mmapped.peak)
    if pools is not None:
        figures = (pools.arenas, pools.bytes, pools.pools, pools.free_pools, pools.used)
        row.update(zip(OF_POOLS, map(_cell, figures)))
        row.update(allocator=pools.allocator, odd=pools.odd)
        row["classes"] = "" if pools.classes is None else _classes(pools.classes)
    return row


def _classes(rows: list[ClassSample]) -> str:
    return " ".join(_packed(*vars(row).values()) for row in rows) or MARKS[3]


def _doubts(sample: Sample) -> Iterator[str]:
    """Yield the names of the parts of a sample that are doubtful."""
    malloc, pools = sample.malloc, sample.pools
    if malloc is not None and malloc.doubtful:
        yield MARKS[0]
    if malloc is not None and malloc.mmapped is not None and malloc.mmapped.doubtful:
        yield MARKS[1]
    if pools is not None and pools.doubtful:
        yield MARKS[2]
    if malloc is not None and any(arena.doubtful for arena in malloc.arenas):
        yield MARKS[3]


def _number(text: str) -> float | int | None:
    if text == "":
        return None
    return whole(text) if text.lstrip("-").isdecimal() else finite(text)


def _whole(text: str) -> int | None:
    return whole(text) if text else None


def _of_cells(row: Mapping[str, str]) -> dict[str, Any]:
    """Return the JSON document that corresponds to a CSV row. Raises ValueError."""
    if row["event"]:
        detail = parsed(row["detail"]) if row["detail"] else {}
        if row["event"] == SERIES:
            return dict(detail)
        when = {"time": finite(row["time"]), "offset": finite(row["offset"]), "pid": _number(row["pid"])}
        return {**detail, **when, "kind": EVENT, "event": row["event"]}
    return {"kind": SAMPLE, SAMPLE: _sample_of(row)}


def _sample_of(row: Mapping[str, str]) -> Sample:
    doubts = row["doubtful"].split()
    plain: dict[str, Any] = {name: _number(row[name]) for name in PLAIN}
    stopped = plain.pop("stopped")
    for name in ("minor_faults", "major_faults", "threads"):
        plain[name] = plain[name] or 0
    return Sample(
        whole(row["pid"]), finite(row["time"]), finite(row["offset"]), **plain, malloc=_malloc_of(row, doubts),
        pools=_pools_of(row, doubts), stopped=None if stopped is None else float(stopped),
    )  # fmt: skip


def _malloc_of(row: Mapping[str, str], doubts: list[str]) -> MallocSample | None:
    if not row["arenas"]:
        return None
    arenas = [_arena_of(packed) for packed in row["arenas"].split() if packed != MARKS[0]]
    mmapped = None
    if row["mmapped_count"]:
        counts = (whole(row["mmapped_count"]), whole(row["mmapped_bytes"]), whole(row["mmapped_peak"]))
        mmapped = MmappedSample(*counts, doubtful=MARKS[1] in doubts)
    return MallocSample(arenas, mmapped, MARKS[0] in doubts)


def _arena_of(packed: str) -> ArenaSample:
    address, system, peak, top, in_use, trim, doubtful = packed.split(":")
    known = (whole(address), whole(system), whole(peak))
    return ArenaSample(*known, _whole(top), _whole(in_use), _whole(trim), doubtful == "1")


def _pools_of(row: Mapping[str, str], doubts: list[str]) -> PoolsSample | None:
    if not row["allocator"]:
        return None
    pools = (_whole(row["pools"]), _whole(row["free_pools"]))
    rows = row["classes"].split()
    found = [ClassSample(*map(whole, packed.split(":"))) for packed in rows if packed != MARKS[3]] if rows else None
    sizes = (whole(row["pool_arenas"]), whole(row["pool_bytes"]))
    return PoolsSample(bounded(row["allocator"]), *sizes, *pools, found, whole(row["odd"]), MARKS[2] in doubts)


# Reading.


def is_series(path: str) -> bool:
    """Return whether the file exists and begins like a series, in either format."""
    try:
        with open_regular(path) as stream:
            first = next(_documents(path, _Lines(path, _unpacked(stream))), None)
    except (OSError, ValueError, UsageError):
        return False
    return first is not None and first[1].get("format") == FORMAT


def read(path: str) -> Series:
    """Read a series. Raises UsageError, with a text of one line, if the file is missing, damaged, not a series, or of a
    newer gdbheap."""
    try:
        with open_to_read(path) as stream:
            return _read(path, _unpacked(stream))
    except (OSError, ValueError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"{one_line(path)} cannot be read: {one_line(reason or error)}") from None


def _read(path: str, stream: BinaryIO) -> Series:
    lines = _Lines(path, stream)
    documents = _documents(path, lines)
    series = _header(path, next(documents, None))
    shift = 0.0
    for number, document in documents:
        try:
            if document.get("format") == FORMAT:
                # A recording that was continued. The offsets of its rows begin anew.
                shift = _header(path, (number, document)).time - series.time
                continue
            _add(series, document, shift)
        except UsageError as error:
            raise _damaged(path, number, error) from None
    return series if not lines.cut else Series(**{**vars(series), "cut": True})


def _unpacked(stream: BinaryIO) -> BinaryIO:
    """Return a stream of a recording, uncompressed if gzip has compressed it."""
    buffered = cast(io.BufferedReader, stream)
    return cast(BinaryIO, gzip.GzipFile(fileobj=buffered)) if buffered.peek(2)[:2] == GZIP else stream


def _add(series: Series, document: dict[str, Any], shift: float) -> None:
    """Add a document's sample or event to the series. ``shift``: the seconds to add to the row's offset. Raises
    UsageError.
    """
    row: Sample | SeriesEvent
    if document.get("kind") == SAMPLE:
        sample = document.get(SAMPLE)
        row = sample if isinstance(sample, Sample) else from_json(Sample, document)
        _check_figures(row)
        _check_figures(_sums(row))
        series.samples.append(row if not shift else replace(row, offset=row.offset + shift))
    else:
        row = from_json(SeriesEvent, {**document, "kind": document.get("event")})
        check_target(row.target or {})
        _check_figures(row)
        series.events.append(row if not shift else replace(row, offset=row.offset + shift))


def _sums(sample: Sample) -> tuple[object, ...]:
    """Return malloc's system, in-use and trimmable bytes, and the used bytes of the pools. A value is None if the
    sample does not have it."""
    malloc, pools = sample.malloc, sample.pools
    return malloc and malloc.system, malloc and malloc.in_use, malloc and malloc.trim, pools and pools.used


def _check_figures(value: Any) -> None:
    """Check all numbers of a record, or of a collection of records. A number with a fraction is a time in seconds, and
    must be a possible time. Raises UsageError."""
    kind = type(value)
    if kind is int or kind is float:
        if kind is float and not is_time(value):
            raise UsageError(f"{value:g} seconds is neither a possible date nor a possible duration")
        if abs(value) > MAX_FIGURE:
            raise UsageError(f"{value} is larger than any figure of a process")
    elif value is not None and kind is not str:
        members = vars(value).values() if is_dataclass(kind) else value
        for one in members if isinstance(members, Iterable) else ():
            _check_figures(one)


class _Lines:
    """The complete lines of a file, with their numbers. ``cut``: whether an incomplete line follows them."""

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self._path, self._stream = path, stream
        self.cut = False

    def __iter__(self) -> Iterator[tuple[int, str]]:
        number, size, room = 0, 0, RoomLeft()
        while line := self._stream.readline(MAX_LINE_BYTES):
            number, size = number + 1, size + len(line)
            room.check(self._path, size, AT_ONCE)
            if len(line) == MAX_LINE_BYTES:
                raise UsageError(f"{one_line(self._path)} is damaged: line {number} is longer than any sample")
            if line[-1] != NEWLINE:
                self.cut = True
                return
            yield number, line.decode("utf-8", "surrogateescape").rstrip("\n")


def _documents(path: str, lines: _Lines) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the rows of a file in either format as JSON documents, with their line numbers."""
    columns: list[str] | None = None
    for number, line in lines:
        try:
            if number == 1 and not line.startswith("{"):
                columns = next(csv.reader([line]))
                if missing := [name for name in COLUMNS if name not in columns]:
                    raise UsageError(f"{one_line(path)} is not a gdbheap recording: it has no column {missing[0]}")
                continue
            if columns is not None and line.startswith(HEADING) and next(csv.reader([line])) == columns:
                # Another recording was joined to this one.
                continue
            yield number, _document(line, columns)
        except (ValueError, KeyError, TypeError, csv.Error) as error:
            if number == 1:
                raise UsageError(f"{one_line(path)} is not a gdbheap recording") from None
            raise _damaged(path, number, error) from None


def _document(line: str, columns: list[str] | None) -> dict[str, Any]:
    """Return one line of a recording as a JSON document. ``columns``: the column names of a CSV file, None for JSON
    lines. Raises ValueError.
    """
    if columns is None:
        found = parsed(line)
        if not isinstance(found, dict):
            raise ValueError("not a JSON object")
        return found
    cells = next(csv.reader([line]))
    if len(cells) != len(columns):
        raise ValueError(f"{len(cells)} cells instead of {len(columns)}")
    return _of_cells(dict(zip(columns, cells)))


def _header(path: str, found: tuple[int, dict[str, Any]] | None) -> Series:
    if found is None or found[1].get("format") != FORMAT:
        raise UsageError(f"{one_line(path)} is not a gdbheap recording")
    number, content = found
    schema = content.get("schema")
    if type(schema) is not int:
        raise UsageError(f"{one_line(path)} is damaged: its format is not a number", [])
    if schema > NUMBER:
        raise UsageError(
            f"{one_line(path)} was written by a newer gdbheap (format {schema}; this one reads up to {NUMBER})"
        )
    try:
        series = from_json(Series, content)
        _check_figures(series)
        return series
    except UsageError as error:
        raise _damaged(path, number, error) from None


def _damaged(path: str, number: int, error: BaseException) -> UsageError:
    return UsageError(f"{one_line(path)} is damaged in line {number}: {one_line(error)}")
