"""Interpreters with their own objects, which evaluate expressions: subreferences.py SEED ISOLATED SHARED TRUTH.

CPython 3.12 and later.

Writes ids of some objects of interpreter N to TRUTH.N, the main one is 0. Each line of standard input is a path: the
ids of the values of the expressions in PATH.N are written to PATH.N.answer. All is JSON.
"""

import os
import sys

if sys.version_info >= (3, 13):
    import _interpreters as interpreters

    run = interpreters.exec
    create = {True: lambda: interpreters.create("isolated"), False: lambda: interpreters.create("legacy")}
else:
    import _xxsubinterpreters as interpreters

    run = interpreters.run_string
    create = {True: lambda: interpreters.create(isolated=True), False: lambda: interpreters.create(isolated=False)}

# Run in every interpreter, after a definition of ``seed``.
FILL = """
import json
import random
import sys

class Node:
    def __init__(self, value):
        self.value = value

rng = random.Random(seed)
kept = {rng.random(): [Node(object()) for _ in range(rng.randrange(1, 20))] for _ in range(200)}

def tell(path):
    nodes = [node for nodes in kept.values() for node in nodes]
    with open(path, "w") as file:
        json.dump([id(one) for node in rng.sample(nodes, 50) for one in (node, node.value)], file)

def answer(path):
    with open(path) as file:
        asked = json.load(file)
    with open(path + ".answer", "w") as file:
        json.dump([id(eval(expression, {"sys": sys})) for expression in asked], file)
"""


def in_all(others, call, path):
    """Call a function in every interpreter with its own path."""
    exec(f"{call}({f'{path}.0'!r})", vars(sys.modules["__main__"]))
    for number, interpreter in others.items():
        run(interpreter, f"{call}({f'{path}.{number}'!r})")


def main():
    """Make the interpreters, fill all, write, evaluate."""
    seed, isolated, shared = map(int, sys.argv[1:4])
    made = [create[number < isolated]() for number in range(isolated + shared)]
    others = {int(interpreter): interpreter for interpreter in made}
    for number, interpreter in others.items():
        run(interpreter, f"seed = {seed + number}\n{FILL}")
    exec(f"seed = {seed}\n{FILL}", vars(sys.modules["__main__"]))
    in_all(others, "tell", sys.argv[4])
    while True:
        line = os.read(0, 4096).decode().strip()
        if not line:
            return
        in_all(others, "answer", line)


if __name__ == "__main__":
    main()
