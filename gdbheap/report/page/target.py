"""The page of a process, a core or a snapshot at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from gdbheap.allocators.registry import MALLOC
from gdbheap.errors import one_line, own_line
from gdbheap.report.formats.composition import MEMORY
from gdbheap.report.formats.flame import flame_style
from gdbheap.report.page.blocks import arenas_section, holes_section
from gdbheap.report.page.composition import composition_section
from gdbheap.report.page.contents import owners_section, retained_section, types_section
from gdbheap.report.page.facts import damage_section, facts_section
from gdbheap.report.page.findings import findings_section
from gdbheap.report.page.heap_map import map_section
from gdbheap.report.page.holders import holders_section
from gdbheap.report.page.html import Section, listed, paragraph, safe
from gdbheap.report.page.ledger import ledger_section
from gdbheap.report.page.skeleton import DARK, LIGHT, MAX_ROWS, fitted, page
from gdbheap.report.page.threads import tasks_section, threads_section
from gdbheap.report.text.numbers import size_text
from gdbheap.report.text.style import Style
from gdbheap.report.words import container
from gdbheap.report.words.ledger import decision
from gdbheap.report.words.remarks import sentence_of
from gdbheap.report.words.verdict import program_text, verdict
from gdbheap.text import Sentence, printable_record

if TYPE_CHECKING:
    from gdbheap.snapshots.overview import Overview

__all__ = ["FLAMES", "missing_in", "moment", "name_of", "sections_of", "target_page", "title_of"]

# The names of the answers in lines that say which answers are missing.
TITLES = {
    "map": "the map of the heap", "holes": "holes", "types": "types", "kept": "objects that retain the most",
    "owners": "owners", "threads": "the memory that frames hold", "tasks": "tasks", "arenas": "arenas", "info": "facts",
}  # fmt: skip
FLAMES = flame_style(MEMORY.colours, (LIGHT["ground"], DARK["ground"]))


def target_page(found: Overview, style: Style, rows: int = MAX_ROWS) -> bytes:
    """Return the HTML page of a target, encoded. Tables have fewer rows if the page would have more than LARGEST bytes.

    ``rows``: the most rows of a table.
    """
    # Commands that the ledger's and the names' texts quote are rewritten later, by as_typed.
    found = replace(found, ledger=printable_record(found.ledger), names=printable_record(found.names))
    said = f"The target was read at {moment(found.time)}. {_versions(found.target)}"
    title = title_of(found.ledger.program, found.target)
    return fitted(lambda most: page(title, _lead(found, style), sections_of(found, most, style), said, FLAMES), rows)


def sections_of(found: Overview, most: int, style: Style) -> list[Section]:
    """Return all sections of the page. A table has at most ``most`` rows."""
    damage = [damage_section(found.damage, most)] if found.damage else []
    return [
        findings_section(found.ledger, style),
        holders_section(found, most),
        *damage,
        _with_decision(ledger_section(found.ledger, most), found, style),
        composition_section(found, most),
        map_section(found),
        holes_section(found.holes, found.pins, most, style),
        types_section(found.types, found.by_type, most, style),
        retained_section(found.kept, most),
        owners_section(found.owners, most),
        threads_section(found.threads, found.lines, found.names),
        tasks_section(found.tasks, most),
        arenas_section(found.arenas, most),
        facts_section(found.info, most),
    ]


def title_of(program: str, target: Mapping[str, Any]) -> str:
    """Return a target's name as the verdict prints it. For an older file without this name, return the name of the
    executable.
    """
    exe = str(target.get("exe") or "an unknown program")
    name = program_text(program or exe.rpartition("/")[2], target.get("pid"))
    return f"core of {name}" if target.get("kind") == "core" else name


def name_of(target: Mapping[str, Any]) -> str:
    """Return a target's description with its executable, such as "process 1234 (/usr/bin/python3.11)"."""
    exe = one_line(target.get("exe") or "an unknown program", 120)
    what = (
        f"process {target.get('pid')}"
        if target.get("kind") == "process"
        else f"core {one_line(target.get('core') or '?', 120)}"
    )
    return f"{what} ({exe})"


def moment(seconds: float) -> str:
    """Return a time as text, in UTC because readers may be anywhere."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, OSError, ValueError):
        return "at an unknown time"


def _versions(target: Mapping[str, Any]) -> str:
    known = [f"{name} {one_line(target[name], 40)}" for name in ("python", MALLOC.name) if target.get(name)]
    return f"{', '.join(known)}." if known else ""


def _lead(found: Overview, style: Style) -> str:
    """Return the markup before the sections: the verdict, the warnings and the main figures."""
    partial = (
        "This report is incomplete: some data was damaged, was cut off, or could not be read." if found.partial else ""
    )
    return (
        f'<p class="lead">{safe(verdict(found.ledger, style), 1000)}</p>\n'
        f"{paragraph(partial, 'warning')}{listed(map(sentence_of, found.warnings), 'warnings')}{_figures(found)}"
    )


def _with_decision(section: Section, found: Overview, style: Style) -> Section:
    """Return the section of the ledger with sentences before it.

    The sentences say how much memory can be returned, and how much the control group uses.
    """
    ledger = found.ledger
    lines = container.render(ledger.container, ledger.rss.lazily_freed, style).splitlines()
    return replace(section, body="".join(map(paragraph, [decision(ledger, style), *lines])) + section.body)


def _figures(found: Overview) -> str:
    return f'<dl class="figures">{"".join(_figure(*row) for row in _known(found))}</dl>\n'


def _figure(key: str, name: str, size: int | None) -> str:
    exact = "" if size is None else size
    return f'<div><dt>{safe(name)}</dt><dd data-figure="{key}" data-v="{exact}">{size_text(size)}</dd></div>'


def _known(found: Overview) -> Iterator[tuple[str, str, int | None]]:
    rss, summary = found.ledger.rss, found.ledger.summary
    yield "rss.bytes", "resident (RSS)", rss.bytes
    if rss.swapped:
        yield "rss.swap", "swapped out", rss.swapped
    if summary is not None:
        yield "summary.used_resident", "in use and resident", summary.used_resident
        yield "summary.free_resident", "free and resident", summary.free_resident
        yield "summary.whole", "free, in whole pages", summary.whole
        if summary.returnable is not None:
            yield "summary.returnable", "returnable by malloc_trim(0)", summary.returnable


def missing_in(found: Overview) -> list[str]:
    """Return one line for each answer that is missing, with the reason."""
    asked = ((title, getattr(found, name)) for name, title in TITLES.items())
    return [Sentence(f"{title}: {own_line(one.why)}") for title, one in asked if one.why]
