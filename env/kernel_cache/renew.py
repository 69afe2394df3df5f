"""A warmed build whose sources are as they were and only look newer: a fresh clone of them, or a branch and back."""

from __future__ import annotations

import os
import time
from pathlib import Path

from env import paths
from env.kernel_cache import recipe

CRATES = ("gpulab", "warpsim", "my-kernels", "my_kernels")


def renew(folder: Path, stamp: dict) -> bool:
    """Gives the notes that cargo keeps of our own crates a new time; False when the build has to be made again.

    cargo builds a crate again when a source is newer than its note of the last build, whatever stands in the source.
    Notes from before these sources were first built are left: they may be of others. Where a crate has no other ones, or
    none of ours has notes at all, as in a build folder of another layout, nothing is touched and the stamp stays.
    """
    since = stamp.get("since", stamp["built"])
    found = [list((folder / "target").rglob(f".fingerprint/{crate}-*/*")) for crate in CRATES]
    ours = [[note for note in notes if note.stat().st_mtime >= since] for notes in found if notes]
    if not ours or not all(ours):
        return False
    for note in (note for notes in ours for note in notes):
        # The time of this moment: another one may only be set by the file's owner, who made the image.
        os.utime(note)
    stamp["built"] = time.time()
    paths.write_json(folder / recipe.STAMP, stamp)
    return True
