"""The library that programs and notebooks import: ``gdbheap.open``, its ``Heap``, and the records that its questions
return.

The answers come from ``gdbheap.answers``; this package only converts them. ``gdbheap/__init__.py`` imports each name on
first use.
"""
