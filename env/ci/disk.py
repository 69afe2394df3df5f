"""Whether the disk has room for `make test`: where it is full, each step would fail in words of its own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

# What a fresh clone holds at the most while it is tested: 9.6 GB, measured on 2026-11-21; the rest is for the builds that
# lessons on candle start on.
NEEDED = 12 * 10**9
# What a clone that is built already may still write.
LEAST = 10**9
FOLDERS = ("target", ".gpulab", ".venv")


def missing(root: Path) -> str | None:
    """The error with its next step; None where there is room. What an earlier run built counts as there."""
    needed = max(NEEDED - sum(held(root / name) for name in FOLDERS), LEAST)
    free = shutil.disk_usage(root).free
    if free >= needed:
        return None
    return (
        f"{free / 1e9:.1f} GB are free in {root}, and `make test` writes up to {needed / 1e9:.1f} GB more there\n"
        "next: make room on that disk, or clone the project to another one; then make test"
    )


def held(folder: Path) -> int:
    """Bytes that a folder takes on the disk; a file with several names counts once."""
    sizes: dict[int, int] = {}
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(place, name))
            except OSError:  # ended builds of others take their files away
                continue
            sizes[found.st_ino] = found.st_blocks * 512
    return sum(sizes.values())
