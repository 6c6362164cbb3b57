"""Hold torch's tensors of random sizes, and write their own figures: tensors.py SEED TRUTH.

TRUTH is {"tensors": [{path, shape, dtype, device, nbytes, bytes, data, views}], "places": [[address, shape, dtype]],
"sparse": path, "false": [address], "views": [address]}. Those at "false" were overwritten.
"""

from __future__ import annotations

import ctypes
import json
import random
import signal
import sys
import warnings

# This folder has programs with the names of modules.
del sys.path[0]
warnings.simplefilter("ignore")

import torch  # noqa: E402

RANDOM = random.Random(int(sys.argv[1]))
HUGE = ((1 << 40) - 1, 1 << 62, (1 << 63) - 1, (1 << 64) - 5)
PRIMES = (101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157)
truth = {"tensors": [], "places": [], "sparse": "sys.modules['__main__'].SPARSE"}


def some(low, high):
    return RANDOM.randrange(low, high)


def storage_of(tensor):
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def impl_of(tensor):
    """Return the address of its StorageImpl."""
    storage = storage_of(tensor)
    return (storage if hasattr(tensor, "untyped_storage") else storage._storage)._cdata


def described(path, tensor, views=0):
    """Return torch's own figures of a tensor."""
    is_here = tensor.device.type == "cpu"
    size = storage_of(tensor).nbytes() if is_here else 0
    truth["tensors"].append({
        "path": path, "shape": list(tensor.shape), "dtype": str(tensor.dtype).partition(".")[2],
        "device": str(tensor.device), "nbytes": tensor.numel() * tensor.element_size(), "bytes": size,
        "data_address": tensor.data_ptr() if size else None, "views": views,
    })  # fmt: skip
    if size and tensor.numel():
        address = tensor.data_ptr() + some(0, tensor.element_size())
        truth["places"].append([address, list(tensor.shape), truth["tensors"][-1]["dtype"]])


def tensors_of_dtypes():
    """Return a tensor of each dtype that torch has."""
    found = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    for dtype in sorted(found, key=str):
        try:
            tensor = torch.empty(tuple(some(3, 9) for _ in range(some(0, 8))), dtype=dtype)
            storage_of(tensor), tensor.element_size()
        except (RuntimeError, TypeError, NotImplementedError):
            continue
        yield str(dtype).partition(".")[2], tensor


def words(address, count):
    return (ctypes.c_uint64 * count).from_address(address)


def alone(tensor, shape, offset):
    """Return a tensor over a part of the storage. Unlike an indexed part, it does not refer to ``tensor``."""
    strides = [1]
    for size in shape[:0:-1]:
        strides.insert(0, strides[0] * size)
    return torch.empty(0).set_(storage_of(tensor), offset, shape, tuple(strides))


def overwritten(which):
    """Return a tensor with one of its fields, found by its value, overwritten."""
    rows, columns, offset = RANDOM.sample(PRIMES, 3)
    tensor = alone(torch.zeros(offset + rows * columns), (rows, columns), offset)
    own, stored = words(tensor._cdata, 24), words(impl_of(tensor), 9)
    field, value = {
        "size": (own, rows), "numel": (own, rows * columns), "offset": (own, offset),
        "room": (stored, 4 * (offset + rows * columns)), "data": (stored, tensor.data_ptr() - 4 * offset),
        "storage": (own, impl_of(tensor)), "larger": (own, rows), "back": (own, id(tensor)),
    }[which]  # fmt: skip
    place = list(field).index(value, 1)
    field[place] = RANDOM.choice(HUGE)
    if which == "storage":
        field[place] = id(tensor)
    if which == "larger":
        more = some(200, 1000)
        field[place], field[list(field).index(rows * columns)] = more, more * columns
    return tensor


class Kept(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(some(100, 200), some(100, 200)))
        self.register_buffer("mean", torch.ones(some(1000, 2000), dtype=torch.float64))


ALL = dict(tensors_of_dtypes())
ALL["viewed"] = torch.ones(some(200, 300), some(30, 50))
VIEWS = [ALL["viewed"][1:], ALL["viewed"].t(), ALL["viewed"][::2, 3:], ALL["viewed"][0].expand(5, -1)]
for name, one in ALL.items():
    described(f"sys.modules['__main__'].ALL['{name}']", one, len(VIEWS) if name == "viewed" else 0)
del one
PART = alone(torch.zeros(some(10_000, 20_000)), (some(3, 9),), some(100, 200))
described("sys.modules['__main__'].PART", PART)
META = torch.empty(some(10, 20), some(1000, 2000), device="meta")
described("sys.modules['__main__'].META", META)
FREED = torch.empty(some(10, 20), some(1000, 2000))
storage_of(FREED).resize_(0)
described("sys.modules['__main__'].FREED", FREED)
SPARSE = torch.eye(some(20, 30)).to_sparse()
MODEL = Kept()
described("sys.modules['__main__'].MODEL._parameters['weight']", MODEL.weight)
described("sys.modules['__main__'].MODEL._buffers['mean']", MODEL.mean)
FALSE = [overwritten(which) for which in ("size", "numel", "offset", "room", "data", "storage", "larger", "back")]
truth["false"] = list(map(id, FALSE))
truth["views"] = list(map(id, VIEWS))
with open(sys.argv[2], "w") as file:
    json.dump(truth, file)
print("ready", flush=True)
signal.pause()
