"""A request counter labelled by raw path (perdy/starlette-prometheus#7)."""

import sys

from prometheus_client import Counter, Histogram

REQUESTS = Counter("http_requests", "requests", ["method", "path", "status"])
LATENCY = Histogram("http_latency", "latency", ["method", "path"])
for n in range(4000):
    path = f"/users/{n * 7919:08x}/profile"
    REQUESTS.labels("GET", path, "200").inc()
    LATENCY.labels("GET", path).observe(0.1)
print("READY", flush=True)
sys.stdin.readline()
