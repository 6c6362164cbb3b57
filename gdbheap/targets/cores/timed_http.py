"""HTTP requests with one time limit for the whole answer.

A time limit of ``urllib`` applies to each receive, not to the whole answer. A server that sends a byte now and then
could therefore hold the client for ever.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.error
import urllib.request
from typing import Any

__all__ = ["ERRORS", "get"]

ERRORS = (urllib.error.URLError, http.client.HTTPException, OSError, ValueError)


def get(url: str, end: float) -> http.client.HTTPResponse:
    """Return the answer to a GET request. If the environment names a proxy, the request goes through it.

    ``end``: the time limit, as a time of ``time.monotonic()``; a later receive raises TimeoutError. Other failures
    raise one of ERRORS.
    """

    class Answer(http.client.HTTPResponse):
        def __init__(self, sock: socket.socket, *rest: Any, **options: Any) -> None:
            super().__init__(sock, *rest, **options)
            self.fp.close()
            self.fp = io.BufferedReader(_SocketBytes(sock, end))

    class Connection(http.client.HTTPConnection):
        response_class = Answer

    class SecureConnection(http.client.HTTPSConnection):
        response_class = Answer

    class Handler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(Connection, request)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(SecureConnection, request)

    opener = urllib.request.build_opener(Handler, SecureHandler)
    answer: http.client.HTTPResponse = opener.open(url, timeout=_left(end))
    return answer


def _left(end: float) -> float:
    left = end - time.monotonic()
    if left <= 0:
        raise TimeoutError("the server took too long")
    return left


class _SocketBytes(io.RawIOBase):
    """A stream of the bytes that a socket receives until the time ``end``."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        super().__init__()
        self._sock, self._end = sock, end
        self._file = sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        """Receive bytes into a buffer, and return their number (0 at the end). Raise TimeoutError after ``end``."""
        self._sock.settimeout(_left(self._end))
        return self._file.readinto(buffer)

    def close(self) -> None:
        """Close the file through which the socket is read. The socket itself belongs to the caller."""
        self._file.close()
        super().close()
