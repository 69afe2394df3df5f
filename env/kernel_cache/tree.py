"""A copy of a warmed build that costs milliseconds: what never changes is linked, all else is copied.

cargo, rustc and evcxr replace libraries by a new file of the same name, so that two builds can share one through
hard links. Fingerprints, dependency lists, lock files and evcxr's own cell crate are written in place: shared, one
notebook's cell would change another's build.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

LINKED = (".rlib", ".rmeta", ".so", ".dylib", ".a")
# What the cells of another kernel left behind.
CELL_FILES = ("libctx.", "libcode_", "ctx.d", "ctx-")
# What a compiler told cargo, which keeps its own notes of that, and why cargo builds again: a third of what is copied.
UNREAD = {"deps": ".d", ".fingerprint": ".json"}
# What cargo adds to a name for each way to build the same crate.
HASHED = re.compile(r"-([0-9a-f]{16})(?:\.\w+)?$")


def is_linked(name: str) -> bool:
    """Whether builds may share this file."""
    return name.endswith(LINKED) or name.startswith(("build-script-", "build_script_"))


def is_left_out(name: str, folder: str, incremental: bool) -> bool:
    """Whether a build's file or folder has no worth in a copy of it."""
    parts = Path(folder).parts[-2:]
    if name.startswith(CELL_FILES) or any(part in parts and name.endswith(end) for part, end in UNREAD.items()):
        return True
    return not incremental and parts[-1:] == ("incremental",)


def linked_copy(
    source: Path,
    target: Path,
    incremental: bool = False,
    soft: bool = False,
    wanted: Callable[[str], bool] = lambda name: True,
) -> None:
    """Copies the folder `source` to `target`, which must not exist.

    `incremental` takes along what speeds up building a changed support crate; no cell needs it. `soft` makes symbolic
    links, for a `source` that stays: in a container's layers a hard link copies the whole file. `wanted` is asked for
    each name.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for folder, folders, files in os.walk(source):
        folders[:] = [f for f in folders if wanted(f) and not is_left_out(f, folder, incremental)]
        new = os.path.normpath(os.path.join(target, os.path.relpath(folder, source)))
        os.mkdir(new)
        # cargo's notes of a build script are named as it is, and written in place.
        notes = ".fingerprint" in Path(folder).parts
        for file in files:
            if not wanted(file) or is_left_out(file, folder, incremental):
                continue
            old = os.path.join(folder, file)
            if is_linked(file) and not notes:
                _link(old, os.path.join(new, file), soft)
            else:
                _copy(old, os.path.join(new, file))


def _copy(old: str, new: str) -> None:
    """With its times: cargo builds again whatever looks older than what it was made from."""
    if os.path.islink(old):
        shutil.copy2(old, new, follow_symlinks=False)
        return
    # These are a thousand small files: `shutil.copy2` takes twice as many calls for each.
    with open(old, "rb") as source, open(new, "wb") as target:
        target.write(source.read())
        status = os.fstat(source.fileno())
    os.chmod(new, status.st_mode)
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))


def _link(old: str, new: str, soft: bool) -> None:
    try:
        if soft:
            os.symlink(os.path.realpath(old), new)
        else:
            os.link(old, new)
    except OSError:
        # A file system without hard links, or too many of them.
        shutil.copy2(old, new)


def dependencies(source: Path, target: Path, own: tuple[str, ...], checked: bool = True) -> None:
    """Copies of a folder that cargo builds in, such as target/debug, what is of dependencies: `own` begins our crates' names.

    Without `checked`, what `cargo check` and clippy left there is not copied.
    """
    ours = tuple(f"{prefix}{name}" for name in own for prefix in ("", "lib"))
    files = [file for file in (source / "deps").glob("*.*") if file.suffix in (".rlib", ".so", ".dylib")]
    built = {found[1] for path in (*files, *(source / "build").glob("*")) if (found := HASHED.search(path.name))}
    for part in (".fingerprint", "build", "deps"):

        def wanted(name: str, part: str = part) -> bool:
            found = HASHED.search(name)
            # A file without a suffix is a test or a program, of ours.
            is_ours = name.startswith(ours) or (part == "deps" and "." not in name)
            return not is_ours and (checked or not found or found[1] in built)

        if (source / part).is_dir():
            linked_copy(source / part, target / part, wanted=wanted)
