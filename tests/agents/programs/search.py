"""A method with an lru_cache without a limit: each call keeps its object and the answer."""

import functools
import signal


class Query:
    def __init__(self, number):
        self.number, self.document = number, bytearray(12_000)

    @functools.lru_cache(maxsize=None)  # noqa: B019, UP033
    def rank(self, field):
        return [self.number, field, len(self.document)]


for number in range(6000):
    Query(number).rank("title")
print("READY", flush=True)
signal.pause()
