"""The Rust kernel as a prebuilt program: the repository's manifest names it, with its version and SHA-256.

`make kernel-asset` makes such programs and writes the manifest (env/setup/pack_kernel.py).
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import json
import lzma
import os
import platform
import re
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from env import paths
from env.console import ToolError
from env.offline.unpack.target import glibc as machine_glibc

MANIFEST = Path(__file__).with_name("kernel_assets.json")
# A file, a folder or an address that holds the program, in place of the manifest's address; the manifest's sum still decides.
VARIABLE = "GPULAB_KERNEL_ASSET"
PROGRAM = "evcxr_jupyter"
TIMEOUT_S = 60
FROM_SOURCE = "nothing to do: the kernel is built from source instead, which takes some minutes"


class NoAssetError(Exception):
    """There is no prebuilt kernel to have for this machine; no fault, and the text says why."""


@dataclass(frozen=True)
class Asset:
    """A row of the manifest: one program, compressed with xz, for one kind of machine."""

    target: str
    version: str
    file: str
    sha256: str
    size: int
    # Of the program itself, unpacked: the size for the disk, the sum to compare two builds by, whatever xz packed them.
    program_size: int
    program_sha256: str
    rustc: str
    # The oldest C library that the program starts with; empty on a Mac.
    glibc: str = ""
    # Where it is published; empty until it is.
    url: str = ""


def read(manifest: Path = MANIFEST) -> list[Asset]:
    """The rows of the manifest."""
    try:
        rows = json.loads(manifest.read_text(encoding="utf-8"))["assets"]
        return [Asset(**row) for row in rows]
    except FileNotFoundError:
        return []
    except (ValueError, KeyError, TypeError) as error:
        raise ToolError(
            f"{manifest.name} cannot be read: {error}", f"get the file back with `git checkout {manifest}`"
        ) from error


def machine_target() -> str:
    """This machine as rustc names it."""
    machine = {"arm64": "aarch64", "AMD64": "x86_64"}.get(platform.machine(), platform.machine())
    return f"{machine}-apple-darwin" if sys.platform == "darwin" else f"{machine}-unknown-linux-gnu"


def numbers(text: str) -> tuple[int, ...]:
    """The parts of the first version number in a text, to compare: `rustc 1.95.0` is (1, 95, 0)."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def choose(assets: list[Asset]) -> Asset:
    """The program for this machine. `NoAssetError` says why there is none."""
    target, glibc = machine_target(), machine_glibc()
    found = next((a for a in assets if (a.target, a.version) == (target, paths.EVCXR_VERSION)), None)
    if found is None:
        raise NoAssetError(f"there is no prebuilt Rust kernel {paths.EVCXR_VERSION} for {target}")
    if found.glibc and not glibc:
        raise NoAssetError("the prebuilt Rust kernel needs glibc, and this machine has another C library")
    if found.glibc and numbers(glibc) < numbers(found.glibc):
        raise NoAssetError(f"the prebuilt Rust kernel needs glibc {found.glibc} or newer, and this machine has {glibc}")
    return found


def address(asset: Asset) -> str:
    """Where to take the program from: what the reader names, or where it is published."""
    named = os.environ.get(VARIABLE, "") or asset.url
    if not named:
        raise NoAssetError(f"no prebuilt Rust kernel is published yet ({VARIABLE}=FILE names one)")
    if "://" in named:
        return named if not named.endswith("/") else named + asset.file
    path = Path(named).expanduser().resolve()
    return (path / asset.file if path.is_dir() else path).as_uri()


def install(asset: Asset, source: str, target: Path, starts: Callable[[Path], object]) -> None:
    """Puts the program at `target`, whole, or leaves what is there. `starts` tries it, and raises a `ToolError`."""
    new = target.with_name(f".{target.name}.{os.getpid()}.new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(target.parent).free < asset.program_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target.parent))
        new.write_bytes(_fetched(asset, source))
        new.chmod(0o755)
        starts(new)
        new.replace(target)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            what = f"{target} cannot be written: {error.strerror or error}"
            raise ToolError(what, "make that folder writable for you; then make setup") from error
        mib = (asset.program_size >> 20) + 1
        raise ToolError(
            f"the disk of {target.parent} is full: the prebuilt Rust kernel takes {mib} MiB",
            "free some space (its build from source takes more); then make setup",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def _fetched(asset: Asset, source: str) -> bytes:
    """The program, once the file's sum is the manifest's; one that differs is no error of the disk's but of its source."""
    try:
        with urllib.request.urlopen(source, timeout=TIMEOUT_S) as stream:
            # One byte more than it should have tells a longer file, however long.
            packed = stream.read(asset.size + 1)
    except (OSError, ValueError, http.client.HTTPException) as error:
        # Its own text has the status; an URLError's only wraps that of its reason.
        reason = error if isinstance(error, urllib.error.HTTPError) else getattr(error, "reason", None) or error
        advice = "check its path" if source.startswith("file:") else "connect this machine to the internet"
        next_step = f"{advice}, or go on: it is built from source instead"
        raise ToolError(f"{source} could not be read: {reason}", next_step) from error
    size, found = len(packed), hashlib.sha256(packed).hexdigest()
    if (size, found) != (asset.size, asset.sha256):
        told = f"{size} of {asset.size} bytes" if size < asset.size else f"SHA-256 {found}"
        raise ToolError(f"{source} is not the file that the repository names ({told})", FROM_SOURCE)
    try:
        return lzma.decompress(packed)
    except (lzma.LZMAError, EOFError) as error:
        raise ToolError(f"{asset.file} cannot be unpacked: {error}", FROM_SOURCE) from error
