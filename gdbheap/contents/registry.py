"""The list of all kinds of contents, in the order in which they are searched for."""

from __future__ import annotations

from gdbheap.contents.content import Content
from gdbheap.contents.cxx.kinds import CxxContent
from gdbheap.contents.java.heap_place import JavaContent
from gdbheap.contents.openssl.connections import OpensslContent
from gdbheap.contents.postgresql.contexts import PostgresqlContent
from gdbheap.contents.python.content import PythonContent

__all__ = ["CONTENTS"]

CONTENTS: tuple[type[Content], ...] = (PythonContent, PostgresqlContent, OpensslContent, CxxContent, JavaContent)
"""All kinds of contents. If several of them know a block, the first one names it."""
