"""The library that programs and notebooks import: `gdbheap.open`, a `Heap`, and what it is asked for as small records.
Thin, over the answers: `gdbheap/__init__.py` imports a name of it when that is first used."""
