"""Fill and empty mimalloc's pages at random, note the blocks, pause: blocks.py SEED OBJECTS THREADS TRUTH.

THREADS further threads allocate too, free what others allocated, and end with some of theirs still held: their pages
are abandoned. sys.getallocatedblocks() goes to TRUTH, a file of eight bytes that is mapped, so that nothing is
allocated between the count and the pause. Standard error may have blocks that are not in it.
"""

import gc
import mmap
import random
import signal
import struct
import sys
import threading


def one(generator):
    """Return an object of a random kind and size: most are small, some larger than a page of mimalloc, few huge."""
    size = generator.randrange(generator.choice((16, 64, 200, 480, 700, 5000)))
    if generator.random() < 0.001:
        size = generator.randrange(generator.choice((100_000, 1_000_000, 3_000_000)))
    kind = generator.randrange(7)
    if kind == 0:
        return "x" * (size + 2)
    if kind == 1:
        return bytes(size + 2)
    if kind == 2:
        return (None,) * (size // 8 + 1)
    if kind == 3:
        return [None] * (size // 8)
    if kind == 4:
        return generator.random()
    if kind == 5:
        return dict.fromkeys(range(size // 64))
    return bytearray(size)


def churn(generator, held, count):
    """Add objects to ``held``, and free some of them, whichever thread made them."""
    for _ in range(count):
        held.append(one(generator))
        if generator.random() < 0.4:
            place = generator.randrange(len(held))
            held[place] = None
    first = generator.randrange(len(held))
    held[first : first + count // 3] = [None] * len(held[first : first + count // 3])


def in_threads(seed, held, count, threads):
    """Churn in some threads, one after the other, and then all at once."""
    work = [threading.Thread(target=churn, args=(random.Random(seed + n), held, count)) for n in range(threads)]
    for thread in work[: threads // 2]:
        thread.start()
        thread.join()
    for thread in work[threads // 2 :]:
        thread.start()
    for thread in work[threads // 2 :]:
        thread.join()


def tell(truth, stats=None, pack=struct.pack_into, blocks=sys.getallocatedblocks, pause=signal.pause):
    """Write the figure, then stop, without allocating a block in between. ``stats`` prints the other figures."""
    pack("<Q", truth, 0, blocks())
    pack("<Q", truth, 0, blocks())
    if stats:
        stats()
    pause()


def main():
    """Read the arguments, churn, write the figure."""
    seed, count, threads = map(int, sys.argv[1:4])
    held = []
    churn(random.Random(seed), held, count)
    held.append(bytearray(random.Random(seed).randrange(16 << 20, 60 << 20)))
    in_threads(seed, held, count // 4, threads)
    with open(sys.argv[4], "w+b") as file:
        file.write(bytes(8))
        file.flush()
        truth = mmap.mmap(file.fileno(), 8)
        gc.collect()
        gc.disable()
        # Since 3.15 free-threaded builds have PyMem_RawMalloc()'s blocks in mimalloc too, in a heap of their own that
        # sys.getallocatedblocks() leaves out: it is the one that sys._debugmallocstats() counts.
        apart = not getattr(sys, "_is_gil_enabled", lambda: True)() and sys.version_info >= (3, 15)
        tell(truth, sys._debugmallocstats if apart else None)
    del held


if __name__ == "__main__":
    main()
