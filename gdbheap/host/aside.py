"""Do work in another thread, and abandon it if another user makes it block in the kernel."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

__all__ = ["do_aside"]

LOOK_SECONDS, LONGEST_SECONDS = 1.0, 10.0


def do_aside(work: Callable[[], None], progress: Callable[[], int]) -> bool:
    """Do ``work`` in another thread; return whether it finished.

    The work is abandoned after ten seconds, or once ``progress`` has returned the same count for a second. Its thread
    may then continue for a while, but nothing waits for it.
    """
    thread = threading.Thread(target=work, daemon=True)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        thread.start()
    except RuntimeError:
        return False
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    end, count = time.monotonic() + LONGEST_SECONDS, None
    while thread.is_alive() and time.monotonic() < end and count != progress():
        count = progress()
        thread.join(LOOK_SECONDS)
    return not thread.is_alive()
