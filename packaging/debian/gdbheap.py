#!/usr/bin/python3 -I
"""The command of the Debian package: gdbheap and what it needs are in a folder of their own.

No variable of Python's and no folder of a user's has a part in what is imported (-I)."""

import sys

sys.path.insert(0, "/usr/lib/gdbheap")

from gdbheap.commands.shell.main import script

script()
