"""Components become compressed archives, kept from bundle to bundle; archives become parts of a chosen size."""

from __future__ import annotations

import hashlib
import io
import json
import lzma
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from env.command import answer
from env.console import ToolError
from env.offline.unpack.archives import sum_of

# Raise it when the way in which components are made changes: archives kept from before are then made again.
LAYOUT = 1
# Archives of the same files are the same bytes, whenever and by whomever they are made.
TIME = 1_700_000_000


@dataclass
class Component:
    """Files that travel together: `files` maps their names in the unpacked folder to where they lie here."""

    name: str
    key: str
    files: dict[str, Path] = field(default_factory=dict)
    machine_code: bool = False


def digest(*parts: object) -> str:
    """A short key that changes with any of the parts."""
    sum_ = hashlib.sha256()
    for part in (LAYOUT, *parts):
        data = part if isinstance(part, bytes) else str(part).encode()
        sum_.update(len(data).to_bytes(8, "little") + data)
    return sum_.hexdigest()[:12]


def kept(scratch: Path, name: str, key: str, make: Callable[[Path], None]) -> Path:
    """The folder of that key, from an earlier bundle or made now; those of older keys go."""
    folder = scratch / f"{name}-{key}"
    if not folder.is_dir():
        for old in (*scratch.glob(f"{name}-????????????"), part := scratch / f"{name}.part"):
            shutil.rmtree(old, ignore_errors=True)
        make(part)
        part.rename(folder)
    return folder


def parse_size(text: str) -> int:
    """`60M` as bytes, with K, M and G as powers of 1024."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if not found or int(found[1]) == 0:
        raise ToolError(f"PART={text} is no size", "make bundle PART=60M")
    size = int(found[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[found[2]]
    if size < 64 << 10:
        raise ToolError(f"parts of {size} bytes would be too many to handle", "make bundle PART=60M")
    return size


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same entry whoever packs it, and when."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mtime = TIME
    info.mode = 0o755 if info.isdir() or info.mode & 0o100 else 0o644
    return info


def compress(component: Component, folder: Path) -> tuple[Path, int, float]:
    """The component as `folder/NAME-KEY.tar.xz`, the size of its files, the seconds; kept if it is there already."""
    began = time.monotonic()
    done = folder / f"{component.name}-{component.key}.tar.xz"
    size = sum(file.lstat().st_size for file in component.files.values())
    if done.is_file():
        return done, size, time.monotonic() - began
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / f".{done.name}.{os.getpid()}"
    # Far back in programs little repeats; in packages whole files do.
    reach = 8 << 20 if component.machine_code else 32 << 20
    chain = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": reach}]
    if component.machine_code:
        # Addresses in calls become absolute, so that calls of one function look alike: a tenth less.
        chain.insert(0, {"id": lzma.FILTER_X86})
    try:
        with lzma.open(part, "wb", filters=chain) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            for name, file in sorted(component.files.items()):
                archive.add(file, name, recursive=False, filter=_plain)
        part.replace(done)
    finally:
        part.unlink(missing_ok=True)
    for old in folder.glob(f"{component.name}-????????????.tar.xz"):
        if old != done:
            old.unlink()
    return done, size, time.monotonic() - began


def write_parts(target: Path, stem: str, part_size: int, info: dict, archives: list[Path]) -> dict[str, str]:
    """Writes `STEM.part01`, `STEM.part02` … of at most `part_size` bytes, and says their names and SHA-256 sums.

    Together they are a plain tar file: `info.json` first, then the archives.
    """
    text = json.dumps(info, indent=1, sort_keys=True).encode()
    with tempfile.TemporaryDirectory(dir=target) as folder:
        whole = Path(folder) / "whole.tar"
        with tarfile.open(whole, "w") as tar:
            first = tarfile.TarInfo("info.json")
            first.size = len(text)
            tar.addfile(_plain(first), io.BytesIO(text))
            for path in archives:
                tar.add(path, path.name.rsplit("-", 1)[0] + ".tar.xz", filter=_plain)
        digits = max(2, len(str(whole.stat().st_size // part_size + 1)))
        split = ["split", f"--bytes={part_size}", "--numeric-suffixes=1", f"--suffix-length={digits}"]
        answer([*split, whole, target / f"{stem}.part"], "see that there is room in dist/, and run again")
    return {part.name: sum_of(part) for part in sorted(target.glob(f"{stem}.part*"))}
