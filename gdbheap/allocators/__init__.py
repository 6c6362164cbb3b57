"""The allocators whose blocks gdbheap reads, and the runtimes and allocators that it only recognises.

``allocator.py`` is the protocol that each allocator implements in a folder of its own; ``registry.py`` lists the
allocators."""
