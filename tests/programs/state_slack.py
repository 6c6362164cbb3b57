"""Leave the address of an object in the unused end of the blocks of modules' states, as an earlier user of them would.

state_slack.py FILE: the file has ``{"victim": address, "states": [address, ...]}`` when the program pauses.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

# struct PyModuleObject: md_def, md_state; struct PyModuleDef: m_size. CPython 3.7 to 3.14, with a GIL.
MD_DEF, MD_STATE, M_SIZE = 24, 32, 56
# pymalloc rounds up to multiples of 16 and has blocks of up to 512 bytes.
ALIGNMENT, LARGEST = 16, 512
WORD = 8


class Victim:
    """An object to which only a variable refers."""


def word(address: int) -> int:
    """Return a word of memory."""
    return ctypes.c_size_t.from_address(address).value


def states() -> list[tuple[int, int]]:
    """Return the address of each module's state, and of the first unused word of its block, if the block has one."""
    found = []
    for module in list(sys.modules.values()):
        if type(module) is not type(sys) or not word(id(module) + MD_DEF) or not word(id(module) + MD_STATE):
            continue
        state, size = word(id(module) + MD_STATE), word(word(id(module) + MD_DEF) + M_SIZE)
        if size <= LARGEST and -size % ALIGNMENT >= WORD:
            found.append((state, state + size))
    return found


def main(path: str) -> None:
    """Write into the unused words, write their addresses, pause."""
    import _csv  # noqa: F401
    import _json  # noqa: F401
    import _struct  # noqa: F401
    import itertools  # noqa: F401

    victim: Any = Victim()
    found = states()
    for _state, slack in found:
        ctypes.c_size_t.from_address(slack).value = id(victim)
    with open(path, "w") as file:
        json.dump({"victim": id(victim), "states": [state for state, _slack in found]}, file)
    sys.stderr.write("ready\n")
    sys.stderr.flush()
    os.read(0, 1)
    del victim


if __name__ == "__main__":
    main(sys.argv[1])
