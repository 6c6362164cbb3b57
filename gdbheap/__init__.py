"""gdbheap: where a process's memory went, down to the last page.

Its rooms, each of which imports only those before it, are in docs/architecture.md.
"""

__version__ = "0.1.0"
