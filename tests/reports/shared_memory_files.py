"""A feeder closes shared memory and never unlinks it: one block of four is mapped (vllm-project/vllm#51317)."""

import os
import sys
from multiprocessing import resource_tracker, shared_memory

blocks = []
for n in range(4):
    block = shared_memory.SharedMemory(name=f"feed_{os.getpid()}_{n}", create=True, size=20 << 20)
    resource_tracker.unregister(block._name, "shared_memory")
    block.buf[:] = b"v" * (20 << 20)
    if n < 3:
        block.close()  # unlink() is forgotten
    else:
        blocks.append(block)
print("READY", flush=True)
sys.stdin.readline()
