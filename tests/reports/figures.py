"""A plotting endpoint that never closes its figures (matplotlib/matplotlib#8519)."""

import io
import sys
import warnings

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

warnings.simplefilter("ignore")


def chart(n):
    fig, axes = plt.subplots(figsize=(8, 6))
    axes.plot(np.linspace(0, 1, 100_000) * n)
    out = io.BytesIO()
    fig.savefig(out, format="png")
    return len(out.getvalue())


for n in range(40):
    chart(n)
print("READY", flush=True)
sys.stdin.readline()
