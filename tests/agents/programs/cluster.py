"""Two processes that share one region of 80 MiB, each with little memory of its own."""

import mmap
import os
import signal

board = mmap.mmap(-1, 80 << 20)
for place in range(0, len(board), 4096):
    board[place] = 1
if os.fork() == 0:
    for place in range(0, len(board), 4096):
        board[place] = 2
    signal.pause()
print("READY", flush=True)
signal.pause()
