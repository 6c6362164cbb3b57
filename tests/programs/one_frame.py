"""Hold one DataFrame in a dict, beside little else: one_frame.py SEED.

Writes its {shape, columns: {name: bytes}}, with the three largest columns, on standard error.
"""

from __future__ import annotations

import json
import random
import signal
import sys

# This folder has programs with the names of modules.
del sys.path[0]

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

count = random.Random(int(sys.argv[1])).randrange(400_000, 500_000)
state = {
    "others": list(range(100)),
    "orders": pd.DataFrame({
        "not one word": np.ones(count, "i1"),
        "price": np.ones(count), "small": np.ones(count, "i2"), "tall": np.ones(count, "c16"),
        "count": np.ones(count, "i4"),
    }),
}  # fmt: skip
Tensor = type("Tensor", (), {"__module__": "torch"})
Polars = type("DataFrame", (), {"__module__": "polars.dataframe.frame"})
unread = [*(Polars() for _ in range(17)), *(Tensor() for _ in range(3))]
frame = state["orders"]
usage = {name: int(size) for name, size in frame.memory_usage(index=False).nlargest(3).items()}
said = {"shape": frame.shape, "columns": usage}
del frame
print(json.dumps(said), file=sys.stderr, flush=True)
signal.pause()
