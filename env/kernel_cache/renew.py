"""A warmed build whose sources are as they were and only look newer: a fresh clone of them, or a branch and back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from env import paths
from env.kernel_cache import recipe

CRATES = ("gpulab", "warpsim")


def renew(folder: Path, stamp: dict) -> None:
    """Gives the notes that cargo keeps of our own crates a new time.

    cargo builds a crate again when a source is newer than its note of the last build, whatever stands in the source.
    Notes from before these sources were first built are left: they may be of others.
    """
    since = stamp.get("since", stamp["built"])
    for crate in CRATES:
        for note in (folder / "target").rglob(f".fingerprint/{crate}-*/*"):
            if note.stat().st_mtime >= since:
                # The time of this moment: another one may only be set by the file's owner, who made the image.
                os.utime(note)
    stamp["built"] = time.time()
    paths.write_json(folder / recipe.STAMP, stamp)
