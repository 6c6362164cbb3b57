"""gdbheap: where a process's memory went, down to the last page.

The parts, each of which imports only what stands before it: errors, target, layout, allocators, python, heap,
answers, report, and gdbheap.commands (the folder commands/ of a checkout).
"""

__version__ = "0.1.0"
