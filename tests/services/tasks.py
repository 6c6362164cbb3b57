"""An asyncio service with 50,000 tasks that wait: tasks.py COUNT READY"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path


class Client:
    """A connected client."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.inbox: asyncio.Queue[bytes] = asyncio.Queue()
        self.name = f"client {number}"


async def receive(client: Client) -> bytes:
    """Wait for a message."""
    return await client.inbox.get()


async def serve(client: Client) -> None:
    """Answer messages for ever."""
    while True:
        await receive(client)


async def main() -> None:
    """Serve this many clients."""
    clients = [Client(number) for number in range(int(sys.argv[1]))]
    tasks = [asyncio.create_task(serve(client), name=client.name) for client in clients]
    await asyncio.sleep(0)
    Path(sys.argv[2]).touch()
    await asyncio.gather(*tasks)


asyncio.run(main())
