"""Read torch's tensors from memory (checked with torch 1.13 and 2.13).

A ``torch.Tensor`` points to a TensorImpl. The TensorImpl points back to the tensor, and to a StorageImpl, whose bytes
several tensors may use (torch/csrc/autograd/python_variable.h, c10/core/TensorImpl.h and StorageImpl.h). Releases
differ in the number of fields before the pointer back. They also differ in the size of reference counts (one word or
two). Therefore both objects are recognised by their vtables, and the pointer back by its value. The fields after it
have stayed the same: sizes and strides, offset, number of items, dtype, device. A tensor is accepted only if the
product of its sizes is its number of items. Its storage must be on its device and have room for all items. The target
must have memory at the storage's address.

The bytes are those of the storage, as in ``untyped_storage().nbytes()``. All of them are in use as long as one tensor
uses any.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from gdbheap.contents.python.arrays.columns import (
    TENSOR,
    ArrayOrTable,
    ColumnValues,
    DataColumn,
    Fits,
    ItemRun,
    NotBelieved,
    run,
)
from gdbheap.contents.python.arrays.fields import Fields
from gdbheap.contents.python.arrays.native_classes import Classes
from gdbheap.dataclass import dataclass

KIND = "torch.Tensor"
# A DENSE object with items has a storage. Objects of subclasses, such as sparse tensors, may have none.
DENSE, STORAGE = "c10::TensorImpl", "c10::StorageImpl"
# Possible offsets in a TensorImpl, in words: of its storage, and of the pointer back to the Python object.
STORAGES, BACK = range(2, 4), range(5, 11)
# Offsets in words from the word after the pointer back. SizesAndStrides: the number of dimensions, then sizes and
# strides, or a pointer to them if there are more than five dimensions. Then storage_offset_, numel_, the dtype (u16)
# and an optional device. The device has three bytes: its type, its index, and whether it is present; in older releases
# the last of these came first.
DIMENSIONS, SIZES, INLINE = 0, 1, 5
OFFSET, NUMEL, DTYPE, TENSOR_WORDS = 11, 12, 13, 14
# In some releases, the lowest bit of the pointer back is set if the tensor owns the Python object.
OWNED = 1
# DATA_AT: possible offsets of the data pointer in a StorageImpl, in words. The following are offsets from there: data,
# deleter, context, device, size.
DATA_AT, DATA, DEVICE, SIZE, STORAGE_WORDS = (2, 3), 0, 3, 4, 5
MAX_DIMENSIONS = 64
MAX_BYTES = 1 << 46
# enum ScalarType (c10/core/ScalarType.h): names, and bytes of an item. The numbers never change, because saved files
# contain them.
DTYPES = (
    ("uint8", 1), ("int8", 1), ("int16", 2), ("int32", 4), ("int64", 8), ("float16", 2), ("float32", 4),
    ("float64", 8), ("complex32", 4), ("complex64", 8), ("complex128", 16), ("bool", 1), ("qint8", 1), ("quint8", 1),
    ("qint32", 4), ("bfloat16", 2), ("quint4x2", 1), ("quint2x4", 1), ("bits1x8", 1), ("bits2x4", 1), ("bits4x2", 1),
    ("bits8", 1), ("bits16", 2), ("float8_e5m2", 1), ("float8_e4m3fn", 1), ("float8_e5m2fnuz", 1),
    ("float8_e4m3fnuz", 1), ("uint16", 2), ("uint32", 4), ("uint64", 8),
    *((f"uint{bits}", 1) for bits in range(1, 8)), *((f"int{bits}", 1) for bits in range(1, 8)),
    ("float8_e8m0fnu", 1), ("float4_e2m1fn_x2", 1),
)  # fmt: skip
# The number of items that share one byte of the storage, for types with several. torch itself counts a byte for each
# item.
PACKED = {"quint4x2": 2, "quint2x4": 4}
# The names of enum DeviceType (c10/core/DeviceType.h).
CPU = "cpu"
DEVICES = (
    CPU, "cuda", "mkldnn", "opengl", "opencl", "ideep", "hip", "fpga", "maia", "xla", "vulkan", "metal", "xpu", "mps",
    "meta", "hpu", "ve", "lazy", "ipu", "mtia", "privateuseone",
)  # fmt: skip
NO_INDEX = 255


@dataclass(frozen=True)
class Tensor:
    """A tensor.

    ``device``: as str() shows it.
    ``storage``: the address of the StorageImpl, 0 if there is none (sparse tensors).
    ``start``, ``size``: where the storage's bytes lie in the target's memory; both are 0 if the bytes lie elsewhere.
    ``offset``, ``strides``: numbers of items, not bytes.
    """

    address: int
    dtype: str
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    device: str
    storage: int
    start: int = 0
    size: int = 0

    @property
    def nbytes(self) -> int:
        """The bytes of all items, whether or not they are adjacent."""
        return prod(self.shape) * self.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the items are adjacent, in the order of the dimensions."""
        expected = 1
        for size, stride in zip(self.shape[::-1], self.strides[::-1]):
            if size != 1 and stride != expected:
                return False
            expected *= size
        return True

    @property
    def needs(self) -> int:
        """The number of bytes that the storage must have: from its start to the end of the tensor's last item."""
        if not self.nbytes:
            return 0
        last = self.offset + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides))
        return -(-(last + 1) * self.itemsize // PACKED.get(self.dtype, 1))

    @property
    def values(self) -> ColumnValues:
        """The values in the target's memory as two runs: from the first item to the last, and the whole storage."""
        length = self.shape[0] if self.shape else 1
        if not self.storage:
            return ColumnValues(self.dtype, length, None)
        if not self.size:
            return ColumnValues(self.dtype, length, 0)
        first = self.offset * self.itemsize
        items = (run(self.start + first, self.needs - first),) if self.nbytes else ()
        pieces: tuple[ItemRun, ...] = (*items, run(self.start, self.size))
        return ColumnValues(self.dtype, length, self.size, pieces)


class Tensors:
    """Reads the torch tensors of one target."""

    def __init__(self, fields: Fields, classes: Classes, fits: Fits) -> None:
        self._fields = fields
        self._classes = classes
        self._fits = fits

    def frame(self, address: int) -> ArrayOrTable:
        """Return the tensor at ``address`` as a table with one column. Raises Fault, NotBelieved."""
        tensor = self.read(address)
        return ArrayOrTable(
            TENSOR, self._fields.type_name(address), address, None, tensor.shape, tensor.dtype,
            [DataColumn(TENSOR, None, tensor.values)], device=tensor.device, storage=tensor.storage,
            nbytes=tensor.nbytes if tensor.storage else None, is_contiguous=tensor.is_contiguous,
        )  # fmt: skip

    def read(self, address: int) -> Tensor:
        """Return the tensor at ``address``. Raises Fault, NotBelieved."""
        if KIND not in self._fields.kinds_of(address):
            raise NotBelieved
        implementation, back = self._implementation(address)
        word = self._fields.memory.machine.word
        start = implementation + (back + 1) * word
        words = self._fields.words(start, TENSOR_WORDS)
        sizes, strides = self._sizes(words)
        if prod(sizes) != words[NUMEL]:
            raise NotBelieved
        code, devices = words[DTYPE] & 0xFFFF, _devices(words[DTYPE])
        if code >= len(DTYPES) or not devices:
            raise NotBelieved
        name, itemsize = DTYPES[code]
        plain = Tensor(address, name, itemsize, sizes, strides, words[OFFSET], _device_text(devices[0]), 0)
        storage = self._storage(implementation)
        return self._stored(plain, storage, devices) if storage else plain

    def _implementation(self, address: int) -> tuple[int, int]:
        """Return the TensorImpl that points back to the object at ``address``, and the index of the word with that
        pointer."""
        for found in self._fields.raw(address):
            if not found or "Tensor" not in self._classes.name(found):
                continue
            words = self._fields.words(found, BACK.stop)
            for place in BACK:
                if words[place] & ~OWNED == address:
                    return found, place
        raise NotBelieved

    def _storage(self, implementation: int) -> int:
        """Return the StorageImpl of a TensorImpl; 0 if it has none."""
        words = self._fields.words(implementation, STORAGES.stop)
        found = next((words[place] for place in STORAGES if self._classes.name(words[place]) == STORAGE), 0)
        if not found and self._classes.name(implementation) == DENSE:
            raise NotBelieved
        return found

    def _sizes(self, words: list[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the sizes and the strides of a tensor, from the ``words`` of its TensorImpl.

        They are in a separate array if there are more than INLINE dimensions. Raises NotBelieved for more than
        MAX_DIMENSIONS.
        """
        count = words[DIMENSIONS]
        if count > MAX_DIMENSIONS:
            raise NotBelieved
        if count > INLINE:
            found = self._fields.words(words[SIZES], 2 * count)
            sizes, strides = found[:count], found[count:]
        else:
            sizes, strides = words[SIZES : SIZES + count], words[SIZES + INLINE : SIZES + INLINE + count]
        return tuple(sizes), tuple(strides)

    def _stored(self, plain: Tensor, storage: int, devices: list[int]) -> Tensor:
        """Return the tensor with its storage, which must be on one of these ``devices``.

        On a device other than the CPU, or without data, the storage has no bytes in the target's memory. Raises
        NotBelieved if no words of the StorageImpl describe a storage.
        """
        for place in DATA_AT:
            start = storage + place * self._fields.memory.machine.word
            words = self._fields.words(start, STORAGE_WORDS)
            device = words[DEVICE] & 0xFFFF
            if device not in devices or words[SIZE] > MAX_BYTES:
                continue
            found = replace(plain, storage=storage, device=_device_text(device))
            if found.device != CPU or not words[DATA] or not words[SIZE]:
                return found
            found = replace(found, start=words[DATA], size=words[SIZE])
            if found.needs <= found.size and self._fits(found.start, found.size):
                return found
        raise NotBelieved


def _devices(word: int) -> list[int]:
    """Return the devices that a word may describe, one for each possible order of the word's fields.

    Each has the type in its low byte and the index in its high byte.
    """
    first, second, third = (word >> shift & 0xFF for shift in (16, 24, 32))
    found = [first | second << 8] if third == 1 else []
    return [*found, second | third << 8] if first == 1 else found


def _device_text(device: int) -> str:
    """Return a device as text, such as ``cpu`` or ``cuda:0``."""
    kind, index = device & 0xFF, device >> 8
    if kind >= len(DEVICES):
        raise NotBelieved
    return DEVICES[kind] if index == NO_INDEX else f"{DEVICES[kind]}:{index}"
