"""The clients of examples/previews.py: a process that sends pages to it, many at the same time, as a busy morning does.

Usage: previews_load.py PORT COUNT
"""

from __future__ import annotations

import asyncio
import random
import sys

# The last AT_NOON pages come all at once, when the newsletter arrives. These pages are long.
SITES, PAGES, AT_ONCE, AT_NOON = 40, 1500, 40, 600
LONG, PIECE = (40 << 10, 110 << 10), 16 << 10
WORDS = 120


def page(number: int, is_long: bool) -> bytes:
    """Return a page. All pages of a site have the same style."""
    rng, site = random.Random(number), number % SITES
    words = " ".join(f"word{rng.randrange(5000)}" for _ in range(WORDS))
    style = f".site{site} {{ margin: {site}px }}\n" * 100
    head = f"<title>Page {number} of site {site}</title><style>{style}</style><p>{words}</p>"
    return head.encode() + b"<!-- -->" * (rng.randrange(*LONG) // 8 if is_long else 0)


async def ask(port: int, number: int, is_long: bool, gate: asyncio.Semaphore) -> None:
    """Send one page, in pieces. Links in newsletters have a number for each reader behind the address."""
    async with gate:
        place = number % PAGES
        content = page(place, is_long)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"https://site{place % SITES}.example/page/{place}?reader={number}\n".encode())
        for start in range(0, len(content), PIECE):
            writer.write(content[start : start + PIECE])
            await writer.drain()
            await asyncio.sleep(0)
        writer.write_eof()
        await reader.read()
        writer.close()


async def ask_all(port: int, count: int) -> None:
    """Send ``count`` pages: most of them a few at a time, the last ones all at once."""
    few, all_of_them = asyncio.Semaphore(AT_ONCE), asyncio.Semaphore(AT_NOON)
    await asyncio.gather(*(ask(port, number, False, few) for number in range(count - AT_NOON)))
    await asyncio.gather(*(ask(port, number, True, all_of_them) for number in range(count - AT_NOON, count)))


async def send(port: int, count: int) -> None:
    """Start a process that sends ``count`` pages to a port."""
    client = await asyncio.create_subprocess_exec(sys.executable, __file__, str(port), str(count))
    await client.wait()


if __name__ == "__main__":
    asyncio.run(ask_all(int(sys.argv[1]), int(sys.argv[2])))
