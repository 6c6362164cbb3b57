"""Tasks that wait for a reply that never comes, each with its request."""

import asyncio

answered = None


class Upstream:
    def __init__(self):
        self.ready = asyncio.Event()

    async def fetch(self, request):
        await self.ready.wait()
        return request


async def handle(upstream, number):
    payload = bytearray(16_000)
    payload[0] = number % 256
    return await upstream.fetch(payload)


async def main():
    upstream = Upstream()
    pending = {asyncio.ensure_future(handle(upstream, number)) for number in range(4000)}
    await asyncio.sleep(0)
    print("READY", flush=True)
    await asyncio.wait(pending)


asyncio.run(main())
