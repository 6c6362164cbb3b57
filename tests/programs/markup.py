"""A program whose types, functions, files and threads have markup for names, and that keeps a token in strings, bytes
and keys. It rests in a function with such a name.

Usage: markup.py TOKEN"""

import signal
import sys
import threading

NAMES = (
    "</script><script>bad()</script>",
    '"><img src=x onerror=bad()>',
    "' onmouseover='bad()",
    "</style></title><b>",
    "&lt;b&gt; --> ]]> {0} %s",
    "\u202e\u2066\x1b[31m",
    "x" * 3000,
)


class Node:
    """The class that holds the token."""

    def __init__(self, token, number):
        self.text = f"{token} {number}"
        self.raw = (token * 50).encode()
        self.table = {f"{token}-{number}": number, (token, number): [token]}


def renamed(function, name):
    """Return the function under another name, in a file with such a name."""
    function.__code__ = function.__code__.replace(co_name=name, co_filename=f"/tmp/{name[:100]}.py")
    return function


def rest(held):
    """Rest with ``held`` as a local variable."""
    ready = threading.Event()
    thread = threading.Thread(target=renamed(lambda: (ready.set(), threading.Event().wait()), NAMES[0]), daemon=True)
    thread.start()
    ready.wait()
    signal.pause()
    return held


def main():
    """Make all objects, and rest."""
    token = sys.argv[1]
    kinds = [type(name, (), {"__module__": name[:40]}) for name in NAMES]
    held = {name: [kind() for _ in range(200 + place)] for place, (name, kind) in enumerate(zip(NAMES, kinds))}
    nodes = [Node(token, number) for number in range(500)]
    holes = [bytearray(90_000) for _ in range(40)]
    del holes[::2]
    with open("/proc/self/comm", "w") as comm:
        comm.write("<b>&\"'</b>")
    vault = {token: {token + str(place): bytearray(70_000) for place in range(9)}}
    renamed(rest, NAMES[1])((token, held, nodes, holes, vault))


if __name__ == "__main__":
    main()
