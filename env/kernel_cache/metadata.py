"""`cargo metadata` without the crates and features that no cell's types come from. Standard library only.

usage: metadata.py FOLDER CARGO metadata …    What cannot be made shorter is passed on as it is. Answers are kept in FOLDER.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

ROOT = Path(__file__).resolve().parents[2]
# Of Rust's standard library: what its own functions are made of, behind types of its own.
OF_STD = """addr2line adler2 alloctests compiler_builtins coretests getopts gimli libc memchr miniz_oxide object panic_abort
panic_unwind profiler_builtins rustc-demangle std_detect rustc-literal-escaper test unicode-width unwind"""
# Of the course's crates, of candle and polars: what only functions call, and what runs in the compiler. Matrix products of the
# CPU; the operating system; packing, texts and numbers as texts; threads and files; macros, and what they are made of.
OF_COURSE = """dyn-stack dyn-stack-macros gemm gemm-c32 gemm-c64 gemm-common gemm-f16 gemm-f32 gemm-f64 libm pulp
pulp-wasm-simd-flag raw-cpuid

libc linux-raw-sys rustix errno sysctl sysinfo tokio mio socket2 crossterm memmap2 signal-hook signal-hook-mio
signal-hook-registry getrandom libloading parking_lot_core

lzma-rust2 zip typed-path flate2 miniz_oxide crc32fast adler2 base64 atoi_simd ryu regex regex-automata regex-syntax
fancy-regex onig onig_sys aho-corasick memchr daachorse spm_precompiled nom minimal-lexical
unicode-normalization-alignments unicode_categories unicode-segmentation unicode-width comfy-table similar csv-core
zmij itoa dtoa chrono-tz phf phf_shared uuid argminmax object ppv-lite86 rand_chacha

rayon rayon-core crossbeam-deque crossbeam-epoch crossbeam-utils csv serde serde_core serde_json num-complex either
once_cell

autocfg paste seq-macro version_check syn quote proc-macro2 unicode-ident litrs cc thiserror-impl zerocopy
zerocopy-derive bytemuck_derive strum_macros const-oid darling darling_core darling_macro derive_builder
derive_builder_core derive_builder_macro strsim ident_case synstructure yoke-derive zerofrom-derive monostate-impl
"""
# Where the folder stands in an answer that is kept: as a path, and in addresses.
FOLDER, ADDRESS = "@folder@", "@address@"
MOST_ANSWERS = 32

# What both commands know, and what decides on which crates there are.
WITH_VALUE = ("--manifest-path", "--lockfile-path", "--config")
ALONE = ("--offline", "--locked", "--frozen")


def built(cargo: str, arguments: list[str]) -> dict[tuple[str, str], set[str]]:
    """Name and version of each crate that is built, with its features, as `cargo tree` tells them."""
    platform = arguments[arguments.index("--filter-platform") + 1]
    command = [cargo, "tree", "--edges=normal,build", "--prefix=none", "--format={p}|{f}", f"--target={platform}"]
    for word, value in zip(arguments, [*arguments[1:], ""], strict=True):
        if word in WITH_VALUE:
            command += [word, value]
        elif word in ALONE or word.startswith("-Z"):
            command.append(word)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[tuple[str, str], set[str]] = {}
    for line in done.stdout.splitlines():
        crate, bar, features = line.removesuffix(" (*)").rpartition("|")
        if bar:
            name, version = crate.split()[:2]
            found.setdefault((name, version.removeprefix("v")), set()).update(filter(None, features.split(",")))
    return found


def _asked_for(metadata: dict, hidden: set[str]) -> set[str]:
    """Names of the crates among `hidden` that the reader's own `:dep` lines name, and of what these need."""
    needs = {node["id"]: set(node["dependencies"]) & hidden for node in metadata["resolve"]["nodes"]}
    found, new = set(), {id for member in metadata["workspace_members"] for id in needs[member]}
    while new:
        found |= new
        new = {id for one in new for id in needs[one]} - found
    return {one["name"] for one in metadata["packages"] if one["id"] in found}


def shorten(metadata: dict, found: dict[tuple[str, str], set[str]]) -> dict:
    """Keeps what is built."""
    ids = {one["id"]: (one["name"], one["version"]) for one in metadata["packages"]}
    if not all(ids[member] in found for member in metadata["workspace_members"]):
        raise LookupError("this tree is of another crate")
    names = {ids[member][0] for member in metadata["workspace_members"]}
    of_std = {"core", "std"} <= names
    hidden = set((OF_STD if of_std else OF_COURSE).split())
    if not of_std:
        hidden -= _asked_for(metadata, {id for id, (name, _) in ids.items() if name in hidden})
    kept = {id for id, crate in ids.items() if crate in found and crate[0] not in hidden}
    for key in ("workspace_members", "workspace_default_members"):
        if key in metadata:
            metadata[key] = [member for member in metadata[key] if member in kept]
    metadata["packages"] = [one for one in metadata["packages"] if one["id"] in kept]
    nodes = [node for node in metadata["resolve"]["nodes"] if node["id"] in kept]
    for node in nodes:
        node["dependencies"] = [id for id in node["dependencies"] if id in kept]
        node["deps"] = [one for one in node["deps"] if one["pkg"] in kept]
        node["features"] = [one for one in node["features"] if one in found[ids[node["id"]]]]
    metadata["resolve"]["nodes"] = nodes
    return metadata


def question(cargo: str, arguments: list[str]) -> str:
    """Names all that the answer depends on: the compiler, the manifests and lock files, and what is asked of them."""
    words = [Path(__file__).read_bytes(), cargo.encode(), os.environ.get("CARGO_ENCODED_RUSTFLAGS", "").encode()]
    manifests = [*ROOT.glob("Cargo.*"), ROOT / "support-crate/Cargo.toml", *ROOT.glob("crates/*/Cargo.toml")]
    words += [manifest.read_bytes() for manifest in sorted(manifests)]
    folder = str(manifest_folder(arguments))
    for word in arguments:
        file = Path(word)
        words.append(in_order(file) if file.is_file() else word.replace(folder, FOLDER).encode())
        if file.is_file() and file.name == "Cargo.toml":
            with suppress(OSError):
                words.append(file.with_name("Cargo.lock").read_bytes())
    sums = hashlib.sha256()
    for word in words:
        sums.update(len(word).to_bytes(8, "little") + word)
    return sums.hexdigest()[:24]


def in_order(manifest: Path) -> bytes:
    """Its lines, sorted: evcxr writes the dependencies of a kernel's crate in another order each time."""
    return b"\n".join(sorted(manifest.read_bytes().splitlines()))


def manifest_folder(arguments: list[str]) -> Path:
    """The folder of the crate that is asked about: each kernel has its own."""
    return Path(arguments[arguments.index("--manifest-path") + 1]).parent


def keep(file: Path, answer: str) -> None:
    """Kept for the next kernel, as far as the disk has room; the oldest go."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.{os.getpid()}")
        new.write_text(answer, encoding="utf-8")
        new.replace(file)
        for old in sorted(file.parent.iterdir(), key=lambda one: one.stat().st_mtime)[:-MOST_ANSWERS]:
            old.unlink()


def main(answers: str, cargo: str, arguments: list[str]) -> int:
    """cargo's own status, and what it said."""
    file = None
    with suppress(OSError, ValueError):
        folder = str(manifest_folder(arguments))
        file = Path(answers) / f"{question(cargo, arguments)}.json"
        sys.stdout.write(file.read_text(encoding="utf-8").replace(ADDRESS, quote(folder)).replace(FOLDER, folder))
        return 0
    done = subprocess.run([cargo, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    answer = done.stdout
    if done.returncode == 0:
        try:
            answer = json.dumps(shorten(json.loads(answer), built(cargo, arguments)), ensure_ascii=False) + "\n"
            if file is not None:
                keep(file, answer.replace(folder, FOLDER).replace(quote(folder), ADDRESS))
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
            # The long answer is right, too.
            answer = done.stdout
    sys.stdout.write(answer)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
