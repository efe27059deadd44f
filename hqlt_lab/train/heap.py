"""Memory that a step frees is kept for the next one.

The C library gives large blocks back to the system at once, and the next step pays for every page again: seen as ten
times the cost of writing 64 MB.  A training step frees and asks for the same blocks all the time.
"""

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
LARGEST = 2**31 - 1  # what its int can say
NEVER = -1


def keep_freed_memory() -> bool:
    """Whether it could be asked for: glibc on Linux."""
    if not sys.platform.startswith("linux"):
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(MMAP_THRESHOLD, LARGEST)) and bool(mallopt(TRIM_THRESHOLD, NEVER))
