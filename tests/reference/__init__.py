"""Slow, simple walkers of a live process, in Python only: a second opinion that shares no code with gdbheap.

They read one small thing at a time, know one layout each (glibc 2.35 to 2.42, CPython 3.10 and 3.11, x86-64) and refuse
others.
"""
