"""Hold instances with tenants, write its own counts to FILE, and rest: SEED COUNT FILE."""

import collections
import json
import os
import random
import sys

SEED, COUNT, FILE = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
rng = random.Random(SEED)
TENANTS = [f"tenant {number} of {rng.getrandbits(40):x}" for number in range(50)]
COLOURS = ("red", "green", "blue")


class Session:
    """A class with attributes in random order; some instances have a dict."""

    def __init__(self):
        if rng.random() < 0.3:
            self.colour = rng.choice(COLOURS)
        # Each has its own str.
        self.tenant_id = "".join(list(rng.choice(TENANTS)))
        self.number = rng.getrandbits(40)
        if rng.random() < 0.1:
            self.__dict__["more"] = 1


kept = [Session() for _ in range(COUNT)]
tenants = collections.Counter(one.tenant_id for one in kept)
with open(FILE, "w") as stream:
    json.dump(tenants, stream)
os.read(0, 1)
