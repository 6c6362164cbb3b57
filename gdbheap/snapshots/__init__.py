"""Take a snapshot of a process or a core, store it in a file, and compare several snapshots.

All functions work on the records of answers, so a process, a core and a file are treated alike.
"""
