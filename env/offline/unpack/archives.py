"""The bundle's files: whether all are there and whole, and how their archives are unpacked."""

from __future__ import annotations

import concurrent.futures
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

from env.console import ToolError

BLOCK = 1 << 20
# What an unpacked half is known by later.
INFO = {"base": "info.json", "course": "offline.json"}


class Joined(io.RawIOBase):
    """Several files, read once from the first to the last as the one that they were cut from."""

    def __init__(self, files: list[Path]) -> None:
        self.files = [file.open("rb") for file in files]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        while self.files:
            if got := self.files[0].readinto(buffer):
                return got
            self.files.pop(0).close()
        return 0


def opened(parts: list[Path]) -> tarfile.TarFile:
    """One half of the bundle."""
    return tarfile.open(fileobj=io.BufferedReader(Joined(parts)), mode="r|")


def check_parts(folder: Path) -> dict[str, list[Path]]:
    """The files of both halves of the bundle, `base` and `course`, after comparing all of them with their sums."""
    advice = f"copy it to {folder} once more from the machine where the bundle was made (dist/), and run again"
    try:
        lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ToolError(f"the list of parts cannot be read: {error}", advice) from error
    sums = {name: sum_ for sum_, name in (line.split(maxsplit=1) for line in lines if line.strip())}
    missing = [name for name in sums if not (folder / name).is_file()]
    if missing:
        raise ToolError(f"missing: {', '.join(missing)} (of {len(sums)} parts)", advice)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        damaged = [
            name for name, good in zip(sums, pool.map(lambda n: sum_of(folder / n) == sums[n], sums)) if not good
        ]
    if damaged:
        raise ToolError(f"damaged: {', '.join(damaged)} (not what was packed)", advice)
    halves = {kind: [folder / n for n in sorted(sums) if f"-{kind}-" in n] for kind in INFO}
    if not all(halves.values()):
        raise ToolError("the list of parts, SHA256SUMS, is not whole", advice)
    return halves


def sum_of(file: Path) -> str:
    """The SHA-256 sum of a file."""
    sum_ = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(BLOCK):
            sum_.update(block)
    return sum_.hexdigest()


def about(parts: list[Path]) -> dict:
    """What one half says about itself."""
    with opened(parts) as outer:
        text = outer.extractfile(next(iter(outer)))
        assert text is not None
        return json.load(text)


def with_folders(archive: tarfile.TarFile, target: str) -> Iterator[tarfile.TarInfo]:
    """Each member, with its folder made before: two archives at once may both find a shared folder missing."""
    for member in archive:
        os.makedirs(os.path.join(target, os.path.dirname(member.name)), exist_ok=True)
        yield member


def extract(archive: tarfile.TarFile, target: Path) -> None:
    """Unpacks one archive."""
    if hasattr(tarfile, "tar_filter"):
        archive.extraction_filter = tarfile.tar_filter
    archive.extractall(target, members=with_folders(archive, str(target)))


def extract_file(file: Path, target: Path) -> None:
    """Unpacks one compressed archive, which is gone then."""
    with tarfile.open(file, "r:xz") as archive:
        extract(archive, target)
    file.unlink()


def unpack(parts: list[Path], target: Path) -> None:
    """Unpacks one half into a folder that is there whole or not at all."""
    info = about(parts)
    needed = info["size"] * 1.1 + sum(part.stat().st_size for part in parts)
    if (free := shutil.disk_usage(target.parent).free) < needed:
        text = f"{target.parent} has room for {free >> 20} MiB; {int(needed) >> 20} MiB are needed"
        raise ToolError(text, "make room, or unpack elsewhere: sh unpack.sh --to FOLDER")
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    archives = new / ".archives"
    archives.mkdir(parents=True)
    with opened(parts) as outer:
        extract(outer, archives)
    with concurrent.futures.ProcessPoolExecutor(None, multiprocessing.get_context("fork")) as pool:
        for job in [pool.submit(extract_file, file, new) for file in archives.glob("*.tar.xz")]:
            job.result()
    shutil.rmtree(archives)
    (new / INFO[info["kind"]]).write_text(json.dumps(info, indent=1), encoding="utf-8")
    new.rename(target)


def known(folder: Path, kind: str) -> dict:
    """What is unpacked already; empty where nothing is."""
    try:
        return json.loads((folder / INFO[kind]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
