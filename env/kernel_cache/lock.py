"""Locks between processes that end with the process, however it ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path, shared: bool = False) -> Iterator[None]:
    """Waits for the lock, and holds it in the `with` block; shared holders do not wait for each other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


def take(path: Path) -> int:
    """Takes the lock for as long as this process, and the program that it turns into, lives."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.set_inheritable(file, True)
    return file


def is_free(path: Path) -> bool:
    """Whether nobody holds the lock: its holder has ended."""
    try:
        file = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(file)
