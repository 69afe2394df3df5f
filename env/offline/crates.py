"""All crates, of the workspace and of the standard library, as a folder that cargo takes for its registry.

The kernel's type analysis reads the standard library's own manifests: without the crates that they name, no
variable gets a type. Crates for other systems must be there too, or cargo resolves nothing, but nobody compiles
them: they are emptied, which saves two thirds.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from env import paths
from env.command import answer
from env.offline.pack import Component, digest, kept
from env.offline.toolchain import Toolchain

ADVICE = "check the network, and that Cargo.lock is up to date (`cargo metadata --locked`), and run again"
# The standard library's manifests use features that only the compiler's own build may.
OWN_FEATURES = {"RUSTC_BOOTSTRAP": "1"}
KEPT = ("cargo.toml", "license", "licence", "copying", "notice", "unlicense", "copyright")


def component(toolchain: Toolchain, scratch: Path) -> Component:
    """The vendored crates; made again when a lock file or a manifest has changed."""
    inputs = [paths.ROOT / "Cargo.lock", paths.ROOT / "Cargo.toml", paths.CRATE / "Cargo.toml"]
    inputs += [*sorted(paths.CRATES.glob("*/Cargo.toml")), toolchain.library / "Cargo.lock"]
    key = digest(toolchain.host, *(file.read_bytes() for file in inputs))
    folder = kept(scratch, "crates", key, lambda part: vendor(toolchain, part))
    files = {f"crates/{file.relative_to(folder)}": file for file in folder.rglob("*") if file.is_file()}
    return Component("crates", key, files)


def vendor(toolchain: Toolchain, folder: Path) -> None:
    """Fetches every crate of both lock files, and empties those that this kind of machine never compiles."""
    library = str(toolchain.library / "Cargo.toml")
    command = ["cargo", "vendor", "--locked", "--versioned-dirs", "--sync", library, str(folder)]
    answer(command, ADVICE, **OWN_FEATURES)
    used = used_crates(paths.ROOT / "Cargo.toml", toolchain.host) | used_crates(Path(library), toolchain.host)
    for crate in sorted(folder.iterdir()):
        if crate.name not in used:
            empty(crate)


def used_crates(manifest: Path, host: str) -> set[str]:
    """`name-version` of all crates that a build for `host` can need, whatever the features."""
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--all-features", "--filter-platform", host]
    found = answer([*command, "--manifest-path", str(manifest)], ADVICE, **OWN_FEATURES)
    return {f"{package['name']}-{package['version']}" for package in json.loads(found)["packages"]}


def empty(crate: Path) -> None:
    """Leaves a crate's manifest and licences, and source files with nothing in them; cargo's sums are corrected."""
    for file in [file for file in crate.rglob("*") if file.is_file() or file.is_symlink()]:
        if file.name == ".cargo-checksum.json" or file.name.lower().startswith(KEPT):
            continue
        if file.suffix == ".rs":
            file.write_text("fn main() {}\n" if file.name == "build.rs" else "", encoding="utf-8")
        else:
            file.unlink()
    record = crate / ".cargo-checksum.json"
    content = json.loads(record.read_text(encoding="utf-8"))
    kept = {name: crate / name for name in content["files"] if (crate / name).is_file()}
    content["files"] = {name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in kept.items()}
    record.write_text(json.dumps(content), encoding="utf-8")
