"""Each tenant's client has its own TLS context, which parses the CA file again (encode/httpx#978)."""

import asyncio
import ssl

import certifi


class Client:
    def __init__(self, tenant):
        self.tenant = tenant
        self.context = ssl.create_default_context(cafile=certifi.where())


clients = {}


async def serve(tenant):
    clients[tenant] = Client(tenant)
    await asyncio.sleep(3600)


async def main():
    tasks = [asyncio.create_task(serve(f"tenant-{n}")) for n in range(150)]
    while len(clients) < len(tasks):
        await asyncio.sleep(0)
    print("READY", flush=True)
    await asyncio.gather(*tasks)


asyncio.run(main())
