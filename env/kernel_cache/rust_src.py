"""The standard library's sources as the type analysis reads them: without what no cell's variable gets its type from.

The analysis (rust-analyzer, inside evcxr) reads all of them at each start of a kernel. Half of their bytes are processors'
instructions (`core::arch`), most of them of other processors; then there are tests, and of what is left two thirds are what
functions do, and comments. rustc has the whole sources.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from env import paths
from env.kernel_cache.signatures import signatures

LIBRARY = paths.GENERATED / "rust-src" / "library"
# Changes when what is left out does.
FORM = 3
# Modules whose files stay, empty, as `mod` names them: instructions, the SIMD types of nightly Rust, tables of characters.
EMPTY = ("stdarch/crates/core_arch/src", "portable-simd/crates/core_simd/src", "core/src/unicode/unicode_data.rs")
# Macros that make each function a dozen times, one for each type of number.
MANIFOLD = {
    f"core/src/{name}.rs" for name in ("num/int_macros", "num/uint_macros", "num/nonzero", "num/mod", "sync/atomic")
}
# Of the first one, what the empty modules are declared in.
KEPT = {"mod.rs", "macros.rs", "simd.rs"}
LEFT_OUT = {"tests", "benches", "examples"}
READ = {".rs", ".toml", ".lock"}


def lean(library: Path, target: Path) -> None:
    """Copies the sources in `library`, a toolchain's, to `target`, which replaces what was there."""
    new = target.with_name(f"{target.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    for file in sorted(library.rglob("*")):
        place = file.relative_to(library)
        if file.suffix not in READ or not file.is_file() or LEFT_OUT & set(place.parts[:-1]):
            continue
        copy = new / place
        copy.parent.mkdir(parents=True, exist_ok=True)
        empty = place.as_posix().startswith(EMPTY) and not (place.parent.as_posix() in EMPTY and place.name in KEPT)
        if file.suffix == ".rs":
            whole = place.as_posix() in MANIFOLD
            text = "" if empty else signatures(file.read_text(encoding="utf-8"), whole)
            copy.write_text(text, encoding="utf-8")
        else:
            copy.write_bytes(file.read_bytes())
    shutil.rmtree(target, ignore_errors=True)
    new.rename(target)


def environment() -> dict[str, str]:
    """Leads the analysis there; without a copy it takes the toolchain's own."""
    return {"RUST_SRC_PATH": str(LIBRARY)} if (LIBRARY / "core").is_dir() else {}
