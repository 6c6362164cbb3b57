"""The metrics of a watch for a monitoring system that asks for them, by the official client library.

The server is the standard library's around the client's WSGI application: it answers a few at a time, and nobody who
says nothing keeps one of them for long. What it answers is known already; nothing is read of a target but RSS."""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Callable, Iterator
from socketserver import TCPServer, ThreadingMixIn
from threading import BoundedSemaphore, Thread
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from gdbheap.errors import NotPermitted, Unsupported, UsageError, one_line
from gdbheap.report.metrics import COUNTER, METRICS, Metric, Now, values_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

__all__ = ["Address", "Server", "address_of", "is_loopback"]

LOOPBACK = "127.0.0.1"
HIGHEST_PORT = 65535
# How many are answered at the same time, and how long each may take to say what it wants.
MOST_AT_ONCE, SECONDS = 16, 5.0
MISSING = (
    "--prometheus needs prometheus_client, which is not installed beside gdbheap: pip install 'gdbheap[prometheus]'"
)


class Address(NamedTuple):
    """Where to listen; port 0 is any that is free."""

    host: str
    port: int


def address_of(text: str) -> Address:
    """ ":9100", "0.0.0.0:9100", "[::1]:9100", "localhost:9100"; without a host it is loopback. Raises ValueError."""
    host, colon, port = text.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    if not colon or not (port.isascii() and port.isdecimal()) or int(port) > HIGHEST_PORT:
        raise ValueError(f"{text!r} is no address: [HOST]:PORT, as :9100 or 0.0.0.0:9100")
    if ":" in host and not is_bracketed:
        raise ValueError(f"{text!r} is no address: IPv6 ones stand in brackets, as [::1]:9100")
    return Address(host[1:-1] if is_bracketed else host or LOOPBACK, int(port))


def is_loopback(host: str) -> bool:
    """Whether a numerical address is to be reached from this machine only."""
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback


class Server:
    """Answers what ``now`` says, at ``address``. Raises UsageError, NotPermitted where it cannot listen there, and
    Unsupported without the client library."""

    def __init__(self, address: Address, now: Callable[[], Now]) -> None:
        application = _application(now)
        self._http = _listening(address)
        self._http.set_app(application)
        # The child that takes a look must not keep the port when we are killed.
        os.register_at_fork(after_in_child=self._http.socket.close)
        Thread(target=self._http.serve_forever, name="metrics", daemon=True).start()

    @property
    def address(self) -> Address:
        """Where it listens, in numbers."""
        return Address(*self._http.socket.getsockname()[:2])

    @property
    def url(self) -> str:
        """What a monitoring system is told to ask."""
        host, port = self.address
        return f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can ask."""
        return is_loopback(self.address.host)

    def end(self) -> None:
        """Listen no more."""
        self._http.shutdown()
        self._http.server_close()


class _Handler(WSGIRequestHandler):
    """One that is asked: quietly, and not forever."""

    timeout = SECONDS

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Http(ThreadingMixIn, WSGIServer):
    """A thread for each that asks, up to MOST_AT_ONCE; others are hung up on."""

    daemon_threads = True

    def __init__(self, family: int, address: tuple[Any, ...]) -> None:
        self.address_family = family
        self._free = BoundedSemaphore(MOST_AT_ONCE)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """As WSGIServer does, but asking no name server what we are called."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Who hangs up, or says nothing, is nobody's concern."""


def _listening(address: Address) -> _Http:
    host, port = address
    where = f"--prometheus: {one_line(host)}:{port}"
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return _Http(family, place)
    except PermissionError:
        raise NotPermitted(f"{where}: a port below 1024 needs CAP_NET_BIND_SERVICE: take a higher one") from None
    except (OSError, UnicodeError) as error:
        said = getattr(error, "strerror", None) or "no such address"
        raise UsageError(f"{where}: cannot listen there: {one_line(said)}") from None


def _application(now: Callable[[], Now]) -> Any:
    try:
        from prometheus_client import CollectorRegistry, make_wsgi_app
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    except ImportError:
        raise Unsupported(MISSING) from None

    def family(metric: Metric, state: Now) -> Family:
        kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
        found = kind(metric.name, metric.meaning, labels=metric.labels)
        for labels, value in values_of(metric, state):
            found.add_metric(labels, value)
        return found

    class Collector:
        """All metrics of one moment."""

        def collect(self) -> Iterator[Family]:
            state = now()
            yield from (family(metric, state) for metric in METRICS)

        def describe(self) -> Iterator[Family]:
            """Their names, without asking for values."""
            yield from (family(metric, Now([])) for metric in METRICS)

    registry = CollectorRegistry()
    registry.register(Collector())
    return make_wsgi_app(registry)
