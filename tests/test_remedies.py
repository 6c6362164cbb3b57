"""The first page names a remedy that fits what holds the memory, and none that cannot help."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from support.gdb_side import compiled
from support.installed import python_with
from support.programs import ask, gdbheap, running

WAIT = "print(flush=True); sys.stdin.readline()"
# Each program keeps COUNT times 4,000 bytes.
KEPT = {
    "weakref.WeakMethod: a bound method keeps": "class Panel:\n"
    "    def __init__(self): self.text = bytes(4000)\n"
    "    def changed(self): pass\n"
    "listeners = [Panel().changed for n in range(COUNT)]\n",
    "pass a callback that does not refer to the watched object": "import weakref\n"
    "class Connection:\n"
    "    def __init__(self): self.text = bytes(4000); weakref.finalize(self, self.close)\n"
    "    def close(self): pass\n"
    "for n in range(COUNT): Connection()\n",
    "give the queue a maxsize": "import queue\njobs = queue.Queue()\nfor n in range(COUNT): jobs.put(bytes(4000))\n",
    "close() each mmap that is no longer used": "import mmap\n"
    "maps = [mmap.mmap(-1, 1 << 20, mmap.MAP_PRIVATE) for n in range(COUNT // 200)]\n"
    "for one in maps: one.write(b'x' * (1 << 20))\n",
}
# Pairs of a large block that stays and of small blocks that are freed, after a large block has raised the threshold.
MERGED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static char *large[20], *small[20][40000];
int main(void) {
    char *first = malloc(1 << 20);
    memset(first, 1, 1 << 20);
    free(first);
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < 40000; j++)
            memset(small[i][j] = malloc(24 + 8 * (j % 5)), 1, 24);
        memset(large[i] = malloc(400000), 1, 400000);
    }
    for (int i = 0; i < 20; i++)
        for (int j = 0; j < 40000; j++)
            free(small[i][j]);
    return getchar() == 1;
}
"""


# A table, and a buffer of stdout in memory that had pointers to the table and its blocks before.
PRINTED = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
char **table;
int main(void) {
    char **first = malloc(8192), *fence;
    table = malloc(2000 * sizeof *table);
    for (int i = 0; i < 2000; i++)
        memset(table[i] = malloc(4000), 1, 4000);
    for (int i = 0; i < 1024; i++)
        first[i] = i % 2 ? (char *)table : table[i];
    fence = malloc(100);
    free(first);
    printf("a line\\n");
    return getchar() == 1 && fence != NULL;
}
"""
# A thread frees temporaries of 8 KiB in its own arena, between blocks that it keeps. The main arena has a large block.
OF_A_THREAD = """
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static sem_t freed;
static char *large, *temporary[8000], *pins[8000];
static void *work(void *none) {
    for (int i = 0; i < 8000; i++) {
        memset(temporary[i] = malloc(8192 + i % 64), 1, 8192);
        if (i % 100 == 0)
            pins[i] = malloc(100);
    }
    for (int i = 0; i < 8000; i++)
        free(temporary[i]);
    sem_post(&freed);
    pause();
    return none;
}
int main(void) {
    pthread_t thread;
    free(malloc(24 << 20));
    large = memset(malloc(20 << 20), 1, 20 << 20);
    sem_init(&freed, 0, 0);
    pthread_create(&thread, NULL, work, NULL);
    sem_wait(&freed);
    printf("a line\\n");
    return getchar() == 1 && large[0] == 1 && pins[0] != NULL;
}
"""


@pytest.mark.parametrize("remedy", KEPT)
def test_remedy_of_the_holder(remedy: str, rng: random.Random, tmp_path: Path) -> None:
    """Check that the finding about the largest holder has a remedy for its kind."""
    code = f"import sys\n{KEPT[remedy].replace('COUNT', str(rng.randrange(5000, 9000)))}{WAIT}"
    with running([sys.executable, "-c", code], tmp_path) as target:
        found = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "holder"]
    assert remedy in found[0]["advice"], found


def test_holes_of_small_blocks_are_not_of_large_ones(tmp_path: Path) -> None:
    """Check that merged small blocks next to large ones get no advice about the threshold of large blocks."""
    with compiled(MERGED, tmp_path) as program, running([str(program)], tmp_path) as target:
        found = {row["id"]: row["bytes"] for row in ask("", str(target.pid))["findings"]}
    assert "large-chunks" not in found and max(found.values()) > 20 << 20, found


def test_holes_of_a_thread_are_not_of_large_ones(tmp_path: Path) -> None:
    """Check that holes in a thread's arena are not taken for those of large blocks in the main arena."""
    with compiled(OF_A_THREAD, tmp_path) as program, running([str(program)], tmp_path) as target:
        found = {row["id"]: row["bytes"] for row in ask("", str(target.pid))["findings"]}
        holes = ask("holes", str(target.pid), "--min=256K", "--top=all")["rows"]
    assert sum(row["resident"] for row in holes) > 40 << 20 and {row["arena"] for row in holes} == {1}
    assert "large-chunks" not in found and max(found.values()) > 20 << 20, found


def test_a_view_shows_its_items(rng: random.Random, tmp_path: Path) -> None:
    """Check that the corner of an array shows the bytes of its items, not those between its rows."""
    count, side = rng.randrange(20, 60), rng.randrange(2, 9)
    code = f"import sys, numpy\nkept = [numpy.ones((512, 512))[:{side}, :{side}] for n in range({count})]\n{WAIT}"
    with running([python_with("numpy"), "-c", code], tmp_path) as target:
        (found,) = [row for row in ask("", str(target.pid))["findings"] if row["id"] == "small-views"]
    # A word on the stack may keep the last one alive.
    views = found["figures"]["views"]
    assert count - 1 <= views <= count and found["figures"]["shown"] == views * side * side * 8


def test_a_buffer_of_text_holds_nothing(tmp_path: Path) -> None:
    """Check that old bytes in a stream's buffer do not count as pointers: otherwise stdout would appear to hold the
    table, too.
    """
    with compiled(PRINTED, tmp_path) as program, running([str(program)], tmp_path) as target:
        page = gdbheap(str(target.pid)).stdout
    assert "'table' in program" in page and "also held by" not in page, page
