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
import shutil
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from env import paths
from env.console import ToolError

MANIFEST = Path(__file__).with_name("kernel_assets.json")
# A file, a folder or an address that holds the program, in place of the manifest's address; the manifest's sum still decides.
VARIABLE = "GPULAB_KERNEL_ASSET"
PROGRAM = "evcxr_jupyter"
TIMEOUT_S = 60
CHUNK = 1 << 20
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


def machine_glibc() -> str:
    """The version of this machine's C library; empty where it is another one (musl, a Mac's)."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError, AttributeError):
        return ""
    return version if name == "glibc" else ""


def numbers(version: str) -> tuple[int, ...]:
    """A version, to compare."""
    return tuple(int(part) for part in version.split("."))


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
    packed, new = (target.with_name(f".{target.name}.{os.getpid()}.{kind}") for kind in ("xz", "new"))
    needed = asset.size + asset.program_size
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if shutil.disk_usage(target.parent).free < needed:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target.parent))
        _fetch(asset, source, packed)
        _unpack(asset, packed, new)
        packed.unlink()
        new.chmod(0o755)
        starts(new)
        new.replace(target)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            what, next_step = (
                f"{target} cannot be written: {error.strerror or error}",
                "make that folder writable for you",
            )
            raise ToolError(what, f"{next_step}; then make setup") from error
        mib = (needed >> 20) + 1
        raise ToolError(
            f"the disk of {target.parent} is full: the prebuilt Rust kernel takes {mib} MiB",
            "free some space (its build from source takes more); then make setup",
        ) from error
    finally:
        for file in (packed, new):
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def _fetch(asset: Asset, source: str, file: Path) -> None:
    """Downloads, or copies, while the sum is taken; a file that differs is no error of the disk's but of its source."""
    digest, size = hashlib.sha256(), 0
    try:
        stream = urllib.request.urlopen(source, timeout=TIMEOUT_S)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise _unreachable(source, error) from error
    with stream, file.open("wb") as out:
        # One byte more than it should have tells a longer file, however long.
        while size <= asset.size:
            try:
                piece = stream.read(min(CHUNK, asset.size + 1 - size))
            except (OSError, http.client.HTTPException) as error:
                raise _unreachable(source, error) from error
            if not piece:
                break
            digest.update(piece)
            size += len(piece)
            out.write(piece)
    if (size, digest.hexdigest()) != (asset.size, asset.sha256):
        found = f"{size} of {asset.size} bytes" if size < asset.size else f"SHA-256 {digest.hexdigest()}"
        raise ToolError(f"{source} is not the file that the repository names ({found})", FROM_SOURCE)


def _unreachable(source: str, error: Exception) -> ToolError:
    # Its own text has the status; an URLError's only wraps that of its reason.
    reason = error if isinstance(error, urllib.error.HTTPError) else getattr(error, "reason", None) or error
    advice = "check its path" if source.startswith("file:") else "connect this machine to the internet"
    return ToolError(f"{source} could not be read: {reason}", f"{advice}, or go on: it is built from source instead")


def _unpack(asset: Asset, packed: Path, program: Path) -> None:
    try:
        with lzma.open(packed) as plain, program.open("wb") as out:
            shutil.copyfileobj(plain, out, CHUNK)
    except (lzma.LZMAError, EOFError) as error:
        raise ToolError(f"{asset.file} cannot be unpacked: {error}", FROM_SOURCE) from error
