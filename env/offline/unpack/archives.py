"""The bundle's files: whether all are there and whole, and how their archives are unpacked."""

from __future__ import annotations

import concurrent.futures
import hashlib
import io
import json
import lzma
import multiprocessing
import os
import shutil
import tarfile
from collections.abc import Iterator
from pathlib import Path

BLOCK = 1 << 20
# What an unpacked half is known by later.
INFO = {"base": "info.json", "course": "offline.json"}


class Problem(Exception):
    """An error for the person at the terminal; its last line names the next step."""


class Joined(io.RawIOBase):
    """Several files, read as the one that they were cut from."""

    def __init__(self, files: list[Path]) -> None:
        self.sizes = [file.stat().st_size for file in files]
        self.files = [file.open("rb") for file in files]
        self.at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: sum(self.sizes)}[whence]
        return self.at

    def readinto(self, buffer: memoryview) -> int:
        start = 0
        for file, size in zip(self.files, self.sizes, strict=True):
            if self.at < start + size:
                file.seek(self.at - start)
                got = file.readinto(memoryview(buffer)[: start + size - self.at])
                self.at += got
                return got
            start += size
        return 0

    def close(self) -> None:
        for file in self.files:
            file.close()
        super().close()


class Slice(io.RawIOBase):
    """One stretch of a file: an archive inside the archive."""

    def __init__(self, file: Joined, begin: int, size: int) -> None:
        self.file, self.left = file, size
        file.seek(begin)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:
        got = self.file.readinto(memoryview(buffer)[: self.left])
        self.left -= got
        return got


def check_parts(folder: Path) -> dict[str, list[Path]]:
    """The files of both halves of the bundle, `base` and `course`, after comparing all of them with their sums."""
    advice = f"copy it to {folder} once more from the machine where the bundle was made (dist/), and run again"
    try:
        lines = (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise Problem(f"the list of parts cannot be read: {error}\nnext: {advice}") from error
    sums = {name: sum_ for sum_, name in (line.split(maxsplit=1) for line in lines if line.strip())}
    missing = [name for name in sums if not (folder / name).is_file()]
    if missing:
        raise Problem(f"missing: {', '.join(missing)} (of {len(sums)} parts)\nnext: {advice}")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        damaged = [
            name for name, good in zip(sums, pool.map(lambda n: sum_of(folder / n) == sums[n], sums)) if not good
        ]
    if damaged:
        raise Problem(f"damaged: {', '.join(damaged)} (not what was packed)\nnext: {advice}")
    halves = {kind: [folder / n for n in sorted(sums) if f"-{kind}-" in n] for kind in INFO}
    if not all(halves.values()):
        raise Problem(f"the list of parts, SHA256SUMS, is not whole\nnext: {advice}")
    return halves


def sum_of(file: Path) -> str:
    """The SHA-256 sum of a file."""
    sum_ = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(BLOCK):
            sum_.update(block)
    return sum_.hexdigest()


def contents(parts: list[Path]) -> tuple[dict, list[tuple[int, int]]]:
    """What one half says about itself, and where its archives begin and how long they are."""
    with Joined(parts) as joined, tarfile.open(fileobj=io.BufferedReader(joined), mode="r:") as outer:
        first, *rest = outer.getmembers()
        text = outer.extractfile(first)
        assert text is not None
        return json.load(text), [(one.offset_data, one.size) for one in rest]


def with_folders(archive: tarfile.TarFile, target: str) -> Iterator[tarfile.TarInfo]:
    """Each member, with its folder made before: two archives at once may both find a shared folder missing."""
    for member in archive:
        os.makedirs(os.path.join(target, os.path.dirname(member.name)), exist_ok=True)
        yield member


def extract(parts: list[Path], begin: int, size: int, target: str) -> None:
    """Unpacks one archive."""
    raw = io.BufferedReader(Slice(Joined(parts), begin, size), BLOCK)
    with lzma.open(raw) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
        if hasattr(tarfile, "tar_filter"):
            archive.extraction_filter = tarfile.tar_filter
        archive.extractall(target, members=with_folders(archive, target))


def unpack(parts: list[Path], target: Path) -> None:
    """Unpacks one half into a folder that is there whole or not at all."""
    info, archives = contents(parts)
    free = shutil.disk_usage(target.parent).free
    if free < info["size"] * 1.1:
        text = f"{target.parent} has room for {free >> 20} MiB; {info['size'] >> 20} MiB are needed"
        raise Problem(f"{text}\nnext: make room, or unpack elsewhere: sh unpack.sh --to FOLDER")
    new = target.with_name(target.name + ".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    workers = min(len(archives), os.cpu_count() or 1)
    with concurrent.futures.ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        for job in [pool.submit(extract, parts, *place, str(new)) for place in archives]:
            job.result()
    (new / INFO[info["kind"]]).write_text(json.dumps(info, indent=1), encoding="utf-8")
    new.rename(target)


def known(folder: Path, kind: str) -> dict:
    """What is unpacked already; empty where nothing is."""
    try:
        return json.loads((folder / INFO[kind]).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
