"""A WSGI application that makes COUNT rows when it is imported."""

import os

ROWS = [
    {"number": number, "name": f"row {number}", "tags": [f"t{number}", []]}
    for number in range(int(os.environ.get("COUNT", "0")))
]


def application(environ, start_response):
    """Answer with the number of rows."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(len(ROWS)).encode()]
