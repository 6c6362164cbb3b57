"""``heap arenas`` against malloc_stats() and malloc_info(), and each chunk's state against the program's own table."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.arena_cases import (
    CASES,
    TCACHE_SIZES,
    Table,
    check_counts,
    check_figures,
    check_states,
    recorder,
)
from support.kernel import segments
from support.library import heap_of
from support.programs import FORMS, GCORE, KERNEL_CORE, PROCESS, ask

pytestmark = pytest.mark.cases(6)


@pytest.mark.parametrize("name", CASES)
def test_arenas_equal_malloc_stats(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check system and in-use bytes of every arena and in total, and fast bins and mmapped chunks by malloc_info()."""
    with recorder(CASES[name], rng, tmp_path) as target:
        answer = ask("arenas", str(target.pid))
    check_figures(answer, target)
    check_counts(answer, CASES[name], Table(tmp_path / "table"))


@pytest.mark.parametrize("form", [GCORE, KERNEL_CORE])
@pytest.mark.parametrize("name", ["1 thread", "8 threads", "arenas of several heaps", "blocked break, 3 threads"])
def test_arenas_of_a_core_equal_malloc_stats(name: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that a core gives malloc_stats' figures, too."""
    with recorder(CASES[name], rng, tmp_path) as target:
        answer = ask("arenas", target.as_form(form))
    check_figures(answer, target)
    check_counts(answer, CASES[name], Table(tmp_path / "table"))


def test_lost_thread_data(rng: random.Random, tmp_path: Path) -> None:
    """Check that a core without some threads' thread-local data reports that their caches cannot be found."""
    with recorder(CASES["8 threads"], rng, tmp_path) as target:
        core = target.gcore()
    assert not [text for text in ask("arenas", str(core))["warnings"] if "thread-local" in text]
    with heap_of(str(core)) as heap:
        lost = rng.sample([thread.thread_pointer for thread in heap.target.threads], 3)
    with core.open("r+b") as file:
        for segment in segments(core):
            for address in lost:
                if segment.start <= address < segment.start + segment.file_size:
                    file.seek(segment.offset + address - segment.start)
                    file.write(bytes(8))
    assert [text for text in ask("arenas", str(core))["warnings"] if "of 3 of 8 threads" in text]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["1 thread", "8 threads"])
def test_states_of_all_pointers(name: str, form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each live pointer starts a used chunk of its size, and that no freed pointer is in a used chunk."""
    with recorder(CASES[name], rng, tmp_path) as target:
        check_states(target.as_form(form), Table(tmp_path / "table"), CASES[name].threads)


@pytest.mark.parametrize("name", sorted(set(CASES) - {"1 thread", "8 threads"}))
def test_states_of_all_pointers_elsewhere(name: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that each pointer has the table's state under other settings of malloc."""
    with recorder(CASES[name], rng, tmp_path) as target:
        check_states(target.as_form(PROCESS), Table(tmp_path / "table"), CASES[name].threads)


@pytest.mark.parametrize("form", FORMS)
def test_at_a_handful(form: str, rng: random.Random, tmp_path: Path) -> None:
    """Check the state that ``heap at`` gives for a pointer, or for a byte inside its block."""
    with recorder(CASES["8 threads"], rng, tmp_path) as target:
        table, name = Table(tmp_path / "table"), target.as_form(form)
        for pointer in rng.sample(sorted(table.live), 6):
            check_used(name, pointer, pointer + rng.randrange(max(1, table.live[pointer])), table.live[pointer])
        for pointer in rng.sample(table.freed, 6):
            block = ask("at", name, hex(pointer))["block"]
            assert block is None or block["state"] != "used" or block["size"] in TCACHE_SIZES, (hex(pointer), block)


def check_used(name: str, pointer: int, address: int, usable: int) -> None:
    """Compare one answer of ``heap at`` with the table."""
    block = ask("at", name, hex(address))["block"]
    assert block is not None and block["address"] == pointer, (hex(pointer), hex(address), block)
    assert block["state"] in ("used", "mmapped") and block["size"] in (usable + 8, usable + 16), block
