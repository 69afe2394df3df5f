"""The repository itself, as committed: the part of the bundle that changes often, and is small."""

from __future__ import annotations

import shutil
from pathlib import Path

from env.command import answer
from env.offline.pack import Component

ADVICE = "make the bundle in a git checkout of the course"


def component(scratch: Path) -> tuple[Component, dict]:
    """The files at HEAD, and the commit's name, which results are to carry where there is no git to ask."""
    commit = answer(["git", "rev-parse", "--short", "HEAD"], ADVICE)
    folder = scratch / "course"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    plain = scratch / "course.tar"
    answer(["git", "archive", "--format=tar", f"--output={plain}", "HEAD"], ADVICE)
    shutil.unpack_archive(plain, folder)
    plain.unlink()
    files = {str(file.relative_to(folder)): file for file in folder.rglob("*") if file.is_symlink() or file.is_file()}
    # The full name of the commit: two commits can begin alike.
    full = answer(["git", "rev-parse", "HEAD"], ADVICE)
    return Component("course", full[:12], files), {"commit": commit}


def notes() -> list[str]:
    """What the maker of the bundle may not have meant."""
    changed = answer(["git", "status", "--porcelain"], ADVICE).splitlines()
    return [f"{len(changed)} changed or new files are not committed, and not in the bundle"] if changed else []
