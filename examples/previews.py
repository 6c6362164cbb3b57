"""A service that makes previews of web pages, and needs more memory each day: docs/tutorial-python.md finds out why.

A client sends an address and a page, and gets back the title. The service keeps the preview for whoever asks next, and
forgets it at night. It is an ordinary asyncio program on the standard library, for Python 3.9 and later; nothing in it
is prepared for gdbheap. examples/previews_fixed.py is the same after the tutorial.

Usage: previews.py [--load=N] [--seconds=3600]
It listens on a port of its own on this machine. With --load another process sends so many pages before it says "ready".
"""

from __future__ import annotations

import argparse
import asyncio
import html
import re
import signal

from previews_load import send

PIECE = 64 << 10
TITLE = re.compile(rb"<title>(.*?)</title>", re.DOTALL)
STYLE = re.compile(rb"<style>(.*?)</style>", re.DOTALL)
PARAGRAPH = re.compile(rb"<p>(.*?)</p>", re.DOTALL)


def text_of(pattern: re.Pattern[bytes], page: bytearray) -> str:
    """Return the first match of the pattern in a page, as text."""
    found = pattern.search(page)
    return html.unescape(found[1].decode("utf-8", "replace")) if found else ""


class Preview:
    """The parts of a page that are shown."""

    def __init__(self, url: str, page: bytearray) -> None:
        self.url = url
        self.title = text_of(TITLE, page)
        self.style = text_of(STYLE, page)
        self.summary = text_of(PARAGRAPH, page)


class Service:
    """The previews, by the addresses of their pages."""

    def __init__(self) -> None:
        self.previews: dict[str, Preview] = {}
        self.waiting: list[asyncio.Task[None]] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read an address and a page; send back the page's title."""
        url = (await reader.readline()).decode().strip()
        page = bytearray()
        while piece := await reader.read(PIECE):
            page += piece
        if url not in self.previews:
            self.previews[url] = Preview(url, page)
            self.waiting.append(asyncio.create_task(self.forget(url)))
        writer.write(self.previews[url].title.encode())
        writer.close()

    async def forget(self, url: str) -> None:
        """Forget a preview at night."""
        await self.night.wait()
        del self.previews[url]

    async def serve(self, load: int) -> None:
        """Answer clients until the process ends."""
        self.night = asyncio.Event()
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0)
        if load:
            await send(server.sockets[0].getsockname()[1], load)
        print("ready", flush=True)
        await server.serve_forever()


app = Service()

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A service that makes previews of web pages.")
    parser.add_argument("--load", type=int, default=0, help="how many pages to have sent to it (none)")
    parser.add_argument("--seconds", type=int, default=3600, help="how long to live at most (3600)")
    options = parser.parse_args()
    signal.alarm(options.seconds)
    asyncio.run(app.serve(options.load))
