"""A WSGI application and a configuration of gunicorn: objects that are made when the application is imported.

COUNT: of how many rows. COLLECT: each worker runs the collector over all objects when it starts, as one does sooner or
later. FREEZE: the master calls gc.freeze() before it forks."""

import gc
import os

COUNT = int(os.environ.get("COUNT", "0"))
ROWS = [{"number": number, "name": "row %d" % number, "tags": ["t%d" % number, []]} for number in range(COUNT)]

bind = "unix:" + os.environ.get("SOCKET", "")
workers = 4
timeout = 600
accesslog = None
errorlog = os.environ.get("LOG", "-")
control_socket_disable = True


def when_ready(server):
    """Before the first worker is forked."""
    if os.environ.get("FREEZE"):
        gc.freeze()


def post_worker_init(worker):
    """In each worker, once it has the application."""
    if os.environ.get("COLLECT"):
        gc.collect()


def application(environ, start_response):
    """Answer with the number of rows."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(len(ROWS)).encode()]
