#!/usr/bin/python3
"""The command of the Debian package: gdbheap and what it needs are in a folder of their own."""

import sys

sys.path.insert(0, "/usr/lib/gdbheap")

from gdbheap.commands.shell.main import script

script()
