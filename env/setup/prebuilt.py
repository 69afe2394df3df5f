"""The Rust kernel out of an offline bundle that somebody published: seconds, where building it takes minutes."""

from __future__ import annotations

import io
import json
import lzma
import shutil
import tarfile
import urllib.error
import urllib.request
from pathlib import Path

from env import paths
from env.console import ToolError
from env.offline.unpack.archives import opened, sum_of
from env.offline.unpack.target import check_machine
from env.setup.kernel_asset import PROGRAM

# Where the address comes from; it ends with a slash, and may be a release's or a folder's (`file:///…/`).
VARIABLE = "GPULAB_BUNDLE"
TIMEOUT_S = 60
BUILT = "it is built here instead"


def _open(address: str) -> io.BufferedIOBase:
    return urllib.request.urlopen(address, timeout=TIMEOUT_S)


def base_parts(address: str) -> dict[str, str]:
    """The names and sums of the parts that hold the tools, in their order."""
    with _open(address + "SHA256SUMS") as list_:
        lines = list_.read().decode("utf-8").splitlines()
    sums = {name: sum_ for sum_, name in (line.split(maxsplit=1) for line in lines if line.strip())}
    return {name: sums[name] for name in sorted(sums) if "-base-" in name and "/" not in name}


def fetch(address: str, name: str, sum_: str, folder: Path) -> Path:
    """One part, compared with its sum; what an interrupted set-up has fetched is not fetched again."""
    target = folder / name
    if not target.is_file() or sum_of(target) != sum_:
        part = target.with_name(f"{name}.partial")
        with _open(address + name) as source, part.open("wb") as file:
            shutil.copyfileobj(source, file)
        if sum_of(part) != sum_:
            raise ToolError(f"{name} is damaged", BUILT)
        part.replace(target)
    return target


def take(parts: list[Path], target: Path) -> bool:
    """Takes the kernel out of the first parts of a bundle; false where it lies further on."""
    new = target.with_name(f".{target.name}.new")
    try:
        with opened(parts) as outer:
            while (member := outer.next()) is not None:
                content = outer.extractfile(member)
                assert content is not None
                if member.name == "info.json":
                    check_machine(json.load(content))
                elif member.name == "kernel.tar.xz":
                    with lzma.open(content) as plain, tarfile.open(fileobj=plain, mode="r|") as inner:
                        file = next(one for one in inner if Path(one.name).name == PROGRAM)
                        program = inner.extractfile(file)
                        assert program is not None
                        with new.open("wb") as out:
                            shutil.copyfileobj(program, out)
                    new.chmod(0o755)
                    new.replace(target)
                    return True
    except ToolError as error:
        raise ToolError(error.what, BUILT) from error
    except (tarfile.ReadError, EOFError, lzma.LZMAError):
        return False
    finally:
        new.unlink(missing_ok=True)
    return False


def kernel(address: str) -> Path:
    """The program `evcxr_jupyter` of the bundle at an address, in .gpulab/tools/bin. A `ToolError` says why not."""
    folder, target = paths.GENERATED / "bundle-parts", paths.GENERATED / "tools" / "bin" / PROGRAM
    folder.mkdir(parents=True, exist_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    fetched: list[Path] = []
    try:
        for name, sum_ in base_parts(address).items():
            fetched.append(fetch(address, name, sum_, folder))
            if take(fetched, target):
                shutil.rmtree(folder, ignore_errors=True)
                return target
    except (OSError, urllib.error.URLError, ValueError) as error:
        raise ToolError(f"{address} could not be read: {error}", BUILT) from error
    raise ToolError(f"there is no whole Rust kernel at {address}", BUILT)
