"""Dependencies that an earlier `make test` built, kept outside the clone: in the folder that GPULAB_CI_CACHE names, if any.

An entry is found by all that decides what cargo builds, and is checked before it is used: a damaged one is thrown away. The
result is the same without; there is one entry at a time, since each is gigabytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

from env import paths
from env.ci import disk
from env.command import output
from env.kernel_cache import renew
from env.kernel_cache.tree import dependencies

SUMS = "sums.json"
# Beside what an entry takes: what the other steps still write.
ROOM = 5 * 10**9


def folder() -> Path | None:
    """Where entries are kept."""
    named = os.environ.get("GPULAB_CI_CACHE")
    return Path(named).expanduser() if named else None


def key(settings: dict[str, str]) -> str:
    """Changes with the lock file, the crates' manifests, the compiler, and the settings that cargo is given."""
    files = [
        *paths.ROOT.glob("Cargo.*"),
        *paths.ROOT.glob("*/*/Cargo.toml"),
        paths.CRATE / "Cargo.toml",
        paths.ENV / "ci/cargo.toml",
    ]
    parts = [
        output(["rustc", "-vV"]),
        # Where libraries are found at run time changes nothing that is built, and names the clone's folder.
        repr(sorted(item for item in settings.items() if item[0] != "LD_LIBRARY_PATH")),
        *(file.read_text("utf-8") for file in sorted(files)),
    ]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def sums(entry: Path) -> dict[str, str]:
    """The sum of each file."""
    files = (file for file in sorted(entry.rglob("*")) if file.is_file() and file.name != SUMS)
    return {str(file.relative_to(entry)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def restore(settings: dict[str, str]) -> bool:
    """Links an entry that fits into a clone in which nothing is built yet."""
    where = folder()
    entry = where / key(settings) if where else None
    if entry is None or not entry.is_dir() or (paths.TARGET / "debug").exists():
        return False
    try:
        good = json.loads((entry / SUMS).read_text(encoding="utf-8")) == sums(entry)
    except (OSError, ValueError):
        good = False
    if not good:
        shutil.rmtree(entry)
        return False
    _copy(entry, paths.TARGET)
    return True


def keep(settings: dict[str, str]) -> None:
    """Makes what was built the entry, where there is room for it; all others are removed."""
    where = folder()
    if where is None or (where / key(settings)).exists():
        return
    where.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(where).free < disk.held(paths.TARGET) + ROOM:
        return
    part = where / "part"
    shutil.rmtree(part, ignore_errors=True)
    _copy(paths.TARGET, part)
    (part / SUMS).write_text(json.dumps(sums(part)), encoding="utf-8")
    for old in where.glob(f"*/{SUMS}"):
        if old.parent != part:
            shutil.rmtree(old.parent)
    part.rename(where / key(settings))


def _copy(source: Path, target: Path) -> None:
    for built in (source / "debug", *source.glob("*-*/debug")):
        dependencies(built, target / built.relative_to(source), renew.CRATES)
