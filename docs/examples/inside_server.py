"""A route that writes a snapshot of its own server, as an ASGI and as a WSGI application.

Run it with any ASGI or WSGI server (``uvicorn inside_server:asgi``, ``gunicorn inside_server:wsgi``), and keep the
route for administrators. Two requests at once do no harm: the second one gets 503."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import gdbheap

ROUTE, FILE = "/admin/heap", "/var/tmp/now.heap"
HEADERS = [("content-type", "text/plain; charset=utf-8")]


def look(path: str = FILE) -> tuple[int, str]:
    """Write the snapshot; the status of the response, and its text."""
    try:
        saved = gdbheap.snapshot(path, max_time="60s")
    except gdbheap.GdbheapError as error:
        return 503, f"{error}\n"
    return 200, f"{saved.path}: {saved.size} bytes; the thread stood for {1000 * saved.paused:.1f} ms\n"


async def asgi(scope: dict[str, Any], _receive: object, send: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Serve as an ASGI application: a thread takes the snapshot, and other requests are served meanwhile."""
    if scope["type"] != "http":
        return
    loop = asyncio.get_running_loop()
    status, text = await loop.run_in_executor(None, look) if scope["path"] == ROUTE else (404, "not here\n")
    headers = [(name.encode(), value.encode()) for name, value in HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def wsgi(environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """Serve as a WSGI application: the thread or the process of the request waits."""
    status, text = look() if environ["PATH_INFO"] == ROUTE else (404, "not here\n")
    start_response(f"{status} {'OK' if status == 200 else 'No'}", HEADERS)
    return [text.encode()]
