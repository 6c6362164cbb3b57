"""A configuration of gunicorn: four workers on a unix socket, SOCKET.

COLLECT: each worker runs the collector over all objects when it starts, as one does sooner or later. FREEZE: the master
calls gc.freeze() before it forks."""

import gc
import os

bind = "unix:" + os.environ["SOCKET"]
workers = 4
timeout = 600
errorlog = os.environ["LOG"]
control_socket_disable = True


def when_ready(server):
    """Act before the first worker is forked."""
    if os.environ.get("FREEZE"):
        gc.freeze()


def post_worker_init(worker):
    """Act in each worker, once it has the application."""
    if os.environ.get("COLLECT"):
        gc.collect()
