"""Let `gdb -x gdbheap` find gdbheap's script. gdb reads this file when it starts."""

import os

import gdb

# After the package's removal this file stays until it is purged.
if os.path.isdir("/usr/lib/gdbheap/gdbheap/loader"):
    gdb.execute("directory /usr/lib/gdbheap/gdbheap/loader", to_string=True)
