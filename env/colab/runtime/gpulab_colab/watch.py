"""Ends the Rust kernel when the Python process that started it ends, however it ends.

usage: watch.py PROCESS_GROUP, with a pipe to that Python process as its standard input. The kernel itself does not
look after its parent, and a Python process that is killed can no longer end anything.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys

if __name__ == "__main__":
    # Returns when the other end of the pipe is closed: by the process itself, or by the system at its end.
    sys.stdin.buffer.read()
    with contextlib.suppress(ProcessLookupError):
        # The whole group: the kernel's child, which runs the cells, too.
        os.killpg(int(sys.argv[1]), signal.SIGKILL)
