"""Fetch files by their build-ids from debuginfod servers, only if the user has named servers (DEBUGINFOD_URLS).

The client's own cache is searched first. Then ``debuginfod-find`` is asked if it is installed, else the servers
themselves, over HTTP as in debuginfod(8): ``GET URL/buildid/HEX/executable``. A fetched file is stored in the client's
cache in the client's form, so that neither program fetches it again. Sizes and times are bounded. A fetched file must
contain the build-id, like any other file.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from gdbheap.environment import find_program, home, trusted
from gdbheap.errors import UsageError
from gdbheap.files import find_file, make_folder, replacing

URLS, CACHE = "DEBUGINFOD_URLS", "DEBUGINFOD_CACHE_PATH"
TOOL = "debuginfod-find"
KINDS = ("executable", "debuginfo")
LARGEST = 1 << 30
SECONDS_A_FILE, SECONDS = 30.0, 120.0
PIECE = 1 << 18
DIGITS = frozenset("0123456789abcdef")

Fetch = Callable[[str], "str | None"]


def cached(build_id: str, kinds: Sequence[str] = KINDS) -> list[str]:
    """Return the paths of the files with a build-id, of these kinds, in the cache of debuginfod's client."""
    if not _is_build_id(build_id):
        return []
    paths = (os.path.join(_folder(), build_id, kind) for kind in kinds)
    return [path for path in paths if _is_filled(path)]


def _is_filled(path: str) -> bool:
    """Return whether a cached file has contents. debuginfod's client stores an empty file for a build-id that no server
    has.
    """
    found = find_file(path)
    return found is not None and found.size > 0


def fetcher(tell: Callable[[str], object] = lambda name: None) -> Fetch | None:
    """Return a function that fetches the file with a build-id and returns its path; None if no server is named.

    ``tell`` is called with the build-id before each request.
    """
    urls = [url for url in trusted(URLS).split() if url.startswith(("http://", "https://"))]
    if not urls:
        return None
    deadline = time.monotonic() + SECONDS
    tool = find_program(TOOL)

    def fetch(build_id: str) -> str | None:
        left = min(SECONDS_A_FILE, deadline - time.monotonic())
        if left <= 0 or not _is_build_id(build_id):
            return None
        tell(build_id)
        return _by_tool(tool, build_id, left) if tool else _by_http(urls, build_id, left)

    return fetch


def _is_build_id(text: str) -> bool:
    return len(text) > 2 and set(text) <= DIGITS


def _folder() -> str:
    """Return the cache folder of debuginfod's client: DEBUGINFOD_CACHE_PATH or its default
    (debuginfod-client-config(7)).
    """
    given = trusted(CACHE)
    if given:
        return given
    base = trusted("XDG_CACHE_HOME") or os.path.join(home(), ".cache")
    return os.path.join(base, "debuginfod_client")


def _by_tool(tool: str, build_id: str, seconds: float) -> str | None:
    """Return the path of the file that debuginfod-find fetches for a build-id; None if it finds none in time."""
    limits = {"DEBUGINFOD_MAXTIME": str(max(1, int(seconds))), "DEBUGINFOD_MAXSIZE": str(LARGEST)}
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(
            [tool, "executable", build_id],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **limits},
            timeout=seconds,
        )
        path = os.fsdecode(done.stdout).strip()
        return path if done.returncode == 0 and os.path.isabs(path) else None
    return None


def _by_http(urls: list[str], build_id: str, seconds: float) -> str | None:
    """Fetch the file with a build-id from the first server that has it. Return its path; None if no server has it."""
    # Imported here, as few runs need it.
    from gdbheap.targets.cores import timed_http

    end = time.monotonic() + seconds
    for url in urls:
        if time.monotonic() > end:
            return None
        with suppress(*timed_http.ERRORS, UsageError):
            with timed_http.get(f"{url.rstrip('/')}/buildid/{build_id}/executable", end) as answer:
                return _keep(answer.read1, build_id, end)
    return None


def _keep(read: Callable[[int], bytes], build_id: str, end: float) -> str | None:
    """Write the bytes that ``read`` returns to a file in the cache, completely or not at all. Return the file's path.

    Raises OSError, also if there are too many bytes or ``read`` has not finished by the time ``end``.
    """
    folder = os.path.join(_folder(), build_id)
    make_folder(folder)
    path, size = os.path.join(folder, KINDS[0]), 0
    with replacing(path) as file:
        while piece := read(PIECE):
            size += len(piece)
            if size > LARGEST or time.monotonic() > end:
                raise OSError("the answer was too large or too slow")
            file.write(piece)
    return path
