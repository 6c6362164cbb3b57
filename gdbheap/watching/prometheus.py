"""Serve the metrics of a watch to Prometheus, with Prometheus's client library.

The standard library's HTTP server runs the client library's WSGI application. The server answers a few requests at a
time, each for a few seconds at most. If more requests wait, it drops the oldest request. The server accepts only
requests for its own host names. Otherwise a foreign web page could make a browser connect to it under another name (DNS
rebinding). For a request, only the RSS of each process is read."""

from __future__ import annotations

import io
import ipaddress
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Lock, Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from gdbheap.errors import NotPermitted, Unsupported, UsageError, one_line
from gdbheap.watching.metrics import COUNTER, METRICS, Metric, Now

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

__all__ = ["Address", "HostNames", "Server", "address_of", "is_loopback"]

LOOPBACK, LOCALHOST = "127.0.0.1", "localhost"
HIGHEST_PORT = 65535
# The most requests that are answered at the same time, the most seconds and the most bytes of a whole request, and the
# seconds to wait until a dropped request has made room.
MOST_AT_ONCE, SECONDS, MOST_BYTES, PARTING_SECONDS = 16, 5.0, 16 << 10, 0.5
# Matches a host, such as [::1]:9464, 127.0.0.1:9464 or localhost.
HOST = re.compile(r"(?:\[([^\[\]]*)\]|([^\s:,\[\]]+))(?::[0-9]*)?")
NO_HOST = "400 Bad Request", b"gdbheap: the request names no host\n"
OTHER_HOST = "421 Misdirected Request", b"gdbheap: this is not its name: 'watch --prometheus-host=NAME' makes it one\n"
MISSING = "--prometheus needs prometheus_client, which is not installed with gdbheap: pip install 'gdbheap[prometheus]'"


class Address(NamedTuple):
    """An address to listen at; port 0 means any free one."""

    host: str
    port: int


def address_of(text: str) -> Address:
    """Parse an address, such as ":9100", "0.0.0.0:9100", "[::1]:9100", "localhost:9100". Without a host the server
    listens on loopback. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > HIGHEST_PORT:
        raise ValueError(f"{text!r} is not an address: give [HOST]:PORT, such as :9100 or 0.0.0.0:9100")
    if ":" in host and not is_bracketed:
        raise ValueError(f"{text!r} is not an address: put IPv6 addresses in brackets, such as [::1]:9100")
    return Address(host[1:-1] if is_bracketed else host or LOOPBACK, int(port))


def is_loopback(host: str) -> bool:
    """Return whether a numerical address can be reached only from this machine."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


class HostNames:
    """The hosts that a request may name (``Host``).

    These are the address at which the server listens (any address if it listens at all addresses), this machine's
    loopback addresses, localhost, and ``others``.
    """

    def __init__(self, listening: str, others: Iterable[str] = ()) -> None:
        own = _address(listening)
        self._own, self._is_any = own, own is not None and own.is_unspecified
        self._others = {_plain(name) for name in (LOCALHOST, listening, *others)}

    def has(self, host: str) -> bool:
        """Return whether a request may name this host, with or without a port."""
        found = HOST.fullmatch(host.strip())
        if found is None:
            return False
        name = _plain(found[1] or found[2])
        address = _address(name)
        if address is None:
            return name in self._others
        return self._is_any or address == self._own or address.is_loopback or name in self._others


def _plain(name: str) -> str:
    return name.strip().rstrip(".").lower()


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse a numerical address. Return None for a name. An IPv4 address mapped into IPv6 is returned as IPv4."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


class Server:
    """Serves metrics over HTTP at ``address``. ``now``: a function that returns the state to be measured. ``names``:
    further host names.

    Raises UsageError, NotPermitted if the server cannot listen at the address, and Unsupported if the client library is
    missing."""

    def __init__(self, address: Address, now: Callable[[], Now], names: Iterable[str] = ()) -> None:
        application = _application(now)
        self._http = _listening(address)
        self._http.set_app(_for(HostNames(self.address.host, [address.host, *names]), application))
        # A child process that reads a heap must not keep the port open if gdbheap is killed.
        os.register_at_fork(after_in_child=self._http.socket.close)
        Thread(target=self._http.serve_forever, name="metrics", daemon=True).start()

    @property
    def address(self) -> Address:
        """The numerical address at which the server listens."""
        return Address(*self._http.socket.getsockname()[:2])

    @property
    def url(self) -> str:
        """The URL of the metrics, for Prometheus."""
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.address.host)

    def end(self) -> None:
        """Stop serving metrics, and close the server's port."""
        self._http.shutdown()
        self._http.server_close()


def _for(names: HostNames, application: Any) -> Any:
    """Return ``application`` wrapped so that it refuses requests for hosts that are not in ``names``."""

    def checked(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        host = environ.get("HTTP_HOST", "")
        if names.has(host):
            answer: Iterable[bytes] = application(environ, start_response)
            return answer
        status, text = OTHER_HOST if host else NO_HOST
        start_response(status, [("Content-Type", "text/plain"), ("Content-Length", str(len(text)))])
        return [text]

    return checked


class _Connection(io.RawIOBase):
    """A client's connection, open for SECONDS at most, that accepts MOST_BYTES at most. Raises
    ConnectionAbortedError."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._deadline, self._bytes = time.monotonic() + SECONDS, MOST_BYTES

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._bytes:
            raise ConnectionAbortedError("too much")
        self._wait()
        try:
            got = self._connection.recv_into(memoryview(buffer)[: self._bytes])
        except OSError as error:
            raise ConnectionAbortedError(str(error)) from None
        self._bytes -= got
        return got

    def write(self, data: Any) -> int:
        self._wait()
        try:
            self._connection.sendall(data)
        except OSError as error:
            raise ConnectionAbortedError(str(error)) from None
        return len(data)

    def _wait(self) -> None:
        """Limit the socket's next operation to the time that the request has left. Raises ConnectionAbortedError."""
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ConnectionAbortedError("too slow")
        self._connection.settimeout(left)


class _Handler(WSGIRequestHandler):
    """Handles one request, with limits of time and size, and logs nothing."""

    def setup(self) -> None:
        connection = _Connection(self.request)
        self.connection = self.request
        self.rfile = io.BufferedReader(connection)
        self.wfile = connection  # type: ignore[assignment]

    def finish(self) -> None:
        self.rfile.close()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Http(ThreadingMixIn, WSGIServer):
    """An HTTP server with a thread for each request, MOST_AT_ONCE at most. If there are more requests, the oldest
    connection is closed, so that slow clients do not keep others out."""

    daemon_threads = True
    # More than MOST_AT_ONCE, because a client whose connection is refused tries again only after a second.
    request_queue_size = 4 * MOST_AT_ONCE

    def __init__(self, family: int, address: tuple[Any, ...]) -> None:
        self.address_family = family
        self._free = BoundedSemaphore(MOST_AT_ONCE)
        # The requests in progress, oldest first.
        self._asking: dict[socket.socket, None] = {}
        self._lock = Lock()
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind as WSGIServer does, but do not ask a name server for this host's name."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._has_room():
            self.shutdown_request(request)
            return
        with self._lock:
            self._asking[request] = None
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._leave(request)
            raise

    def _has_room(self) -> bool:
        if self._free.acquire(blocking=False):
            return True
        with self._lock:
            for oldest in [*self._asking][:1]:
                # This ends the connection's thread.
                with suppress(OSError):
                    oldest.shutdown(socket.SHUT_RDWR)
        return self._free.acquire(timeout=PARTING_SECONDS)

    def _leave(self, request: socket.socket) -> None:
        with self._lock:
            self._asking.pop(request, None)
        self._free.release()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or time out."""


def _listening(address: Address) -> _Http:
    host, port = address
    where = f"--prometheus: {one_line(host)}:{port}"
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Http(family, place)
    except PermissionError:
        raise NotPermitted(f"{where}: a port below 1024 needs CAP_NET_BIND_SERVICE: choose a higher port") from None
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "no such address"
        raise UsageError(f"{where}: cannot listen at this address: {one_line(said)}") from None


def _application(now: Callable[[], Now]) -> Any:
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError:
        raise Unsupported(MISSING) from None

    def family(metric: Metric, state: Now) -> Family:
        kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
        found = kind(metric.name, metric.meaning, labels=metric.labels_in(state))
        for labels, value in metric.rows(state):
            found.add_metric(labels, value)
        return found

    class Collector:
        """Computes the current values of all metrics for Prometheus's client library, once for each request."""

        def collect(self) -> Iterator[Family]:
            state = now()
            yield from (family(metric, state) for metric in METRICS)

        def describe(self) -> Iterator[Family]:
            """Yield the metrics without their values."""
            yield from (family(metric, Now([])) for metric in METRICS)

    registry = CollectorRegistry()
    registry.register(Collector())
    return make_wsgi_app(registry)
