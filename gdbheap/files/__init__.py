"""Write every file of gdbheap in the same safe way: links and files of other users are not followed or replaced.

A new file is written under a random name in its destination folder, with mode 0600. It is renamed once it is complete.
The folder is held by a descriptor from the first check to the rename. docs/setup.md has the rules for users.
"""

from gdbheap.files.folders import HeldFolder
from gdbheap.files.new_file import NewFile, check_writable, hold_folder_of, replacing, settle, write_bytes, write_text
from gdbheap.files.new_folder import (
    PrivateFolder,
    check_folder,
    check_place,
    is_shared,
    make_folder,
    replacing_folder,
    temporary_folder,
    working_folder,
)
from gdbheap.files.opening import (
    Hold,
    find_file,
    hold_file,
    is_file,
    is_folder,
    open_folder,
    open_inside,
    open_regular,
    open_to_append,
    open_to_read,
    regular_descriptor,
)
from gdbheap.files.refusing import PRIVATE, not_written, refused
from gdbheap.files.special import is_stream, own_descriptor

__all__ = [
    "PRIVATE",
    "Hold",
    "HeldFolder",
    "NewFile",
    "PrivateFolder",
    "check_folder",
    "check_place",
    "check_writable",
    "find_file",
    "hold_file",
    "hold_folder_of",
    "is_file",
    "is_folder",
    "is_shared",
    "is_stream",
    "make_folder",
    "not_written",
    "open_folder",
    "open_inside",
    "open_regular",
    "open_to_append",
    "open_to_read",
    "own_descriptor",
    "refused",
    "regular_descriptor",
    "replacing",
    "replacing_folder",
    "settle",
    "temporary_folder",
    "working_folder",
    "write_bytes",
    "write_text",
]
