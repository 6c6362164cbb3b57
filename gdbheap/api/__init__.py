"""The library that programs and notebooks import: ``gdbheap.open``, its ``Heap``, and the answers as small records.

It is a thin layer over the answers. ``gdbheap/__init__.py`` imports each name on first use.
"""
