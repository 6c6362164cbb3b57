"""An HTTP server with threads on a free port of the loopback interface: server.py PORTFILE.

The reply to a request is the checksum of its body, and the path. The kept bodies change with every request.
"""

from __future__ import annotations

import collections
import os
import sys
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEPT: collections.OrderedDict[str, bytes] = collections.OrderedDict()
MOST = 3000


class Handler(BaseHTTPRequestHandler):
    """Handles requests."""

    protocol_version = "HTTP/1.1"
    # Its replies are short, and sent in two writes.
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Reply to one request, and keep its body for a while."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        KEPT[self.path] = body
        while len(KEPT) > MOST:
            KEPT.popitem(last=False)
        answer = b"%d %s" % (zlib.crc32(body), self.path[1:].encode())
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_arguments: object) -> None:
        """Print nothing."""


def main() -> None:
    """Serve until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(server.server_address[1]))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    server.serve_forever()


if __name__ == "__main__":
    main()
