"""What a kernel's build depends on: its settings, and a key that changes when a warmed build is out of date."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from env import paths
from env.kernel_cache import analysis, candle, rust_src

STAMP = "warm.json"
# Held for the moment in which one warmed build takes another's place, or is copied.
SWAP_LOCK = paths.GENERATED / "warm-swap.lock"
# The crates that build in a minute, as `:dep` lines: most notebooks begin with some of them. Every set-up builds them all.
PLAIN = "\n".join(
    [
        ':dep gpulab = { path = "../support-crate" }',
        *(f':dep gpulab-{name} = {{ path = "../crates/{name}" }}' for name in ("kernels", "lessons", "profiling")),
    ]
)
# These stand on candle or polars. Beside them cargo builds the crates that they share with the others with more features.
LARGE = re.compile(r"^:dep gpulab-(nn|onnx|tables)\b", re.MULTILINE)
# evcxr turns both checks on, in the dependencies too: CPU baselines would not be fair.
PROFILE = {"CARGO_PROFILE_DEV_OVERFLOW_CHECKS": "false", "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false"}
# Where nobody measures with it (GPULAB_QUICK_BUILD, which CI sets): a third less to build of polars, whose pipeline then
# takes a third longer, as a crate's parts are not optimised together once more.
QUICK = {"CARGO_PROFILE_DEV_LTO": "off", "CARGO_INCREMENTAL": "0"}
# And cells, of which each is compiled to run once: a quarter less of rustc's time. The crates that they call stay as they are.
QUICK_CELLS = "-Copt-level=1"
# By package, which no variable can say.
CARGO = Path(__file__).with_name("cargo.toml")
# Between cargo and rustc for each cell; its crate is the only one in a kernel's workspace, so no dependency is built anew.
CELLS = Path(__file__).with_name("cells_rustc.sh")
# What evcxr runs as cargo for each cell, and the rustup that tells it so: evcxr asks no variable.
CELLS_CARGO = Path(__file__).with_name("cells_cargo.sh")
CELLS_PATH = Path(__file__).with_name("path")
# Between these and rustc: what each start asks it anew.
RUSTC_ANSWERS = Path(__file__).with_name("rustc_answers.sh")
# evcxr's own flags for rustc, which flags from the environment replace.
EVCXR_FLAGS = ("-Cprefer-dynamic",)
# What a reader's own environment says here would make a kernel's build differ from the warmed one, and rebuild all.
DROPPED = re.compile(
    r"CARGO_PROFILE_.*|CARGO_BUILD_(?!JOBS$).*|CARGO_TARGET_DIR|CARGO_INCREMENTAL|(CARGO_ENCODED_)?RUSTFLAGS"
    r"|RUSTC(_WORKSPACE)?(_WRAPPER)?|EVCXR_.*|RUST_SRC_PATH|GPULAB_RUSTC(_ANSWERS)?|GPULAB_CELL_FLAGS"
)
# The prelude that evcxr runs at each start. evcxr begins with a build without dependencies, which empties Cargo.lock:
# the project's own is put back, so that a kernel gets the versions that were warmed, and asks no network for newer.
PUT_LOCK_BACK = '!cp -f "$EVCXR_TMPDIR/gpulab.lock" "$EVCXR_TMPDIR/Cargo.lock"'
DEP = re.compile(r"^\s*:dep\s.*$", re.MULTILINE)
# Loading the crate into the type analysis takes seconds: at the start, while the reader reads, not in the first cell.
LOAD_TYPES = "let gpulab_types = vec![0f32]; drop(gpulab_types);"


def profile(quick: bool | None = None) -> dict[str, str]:
    """The settings that the set-up decided on; the kernels' are the same, or cargo would build all again."""
    return {**PROFILE, **(QUICK if (paths.read_json(paths.STATE).get("quick") if quick is None else quick) else {})}


def environment(base: dict[str, str], folder: Path, toolchain: Path, evcxr: Path) -> dict[str, str]:
    """The environment of a kernel that builds its cells in `folder`."""
    env = {name: value for name, value in base.items() if not DROPPED.fullmatch(name)}
    env.update(profile())
    # A cell is built from what the one before has left; the crates' own builds never are (`CARGO`).
    env.pop("CARGO_INCREMENTAL", None)
    if paths.read_json(paths.STATE).get("quick"):
        env["GPULAB_CELL_FLAGS"] = QUICK_CELLS
    env.update(candle.flags(EVCXR_FLAGS))
    env["EVCXR_TMPDIR"] = str(folder)
    env["EVCXR_CONFIG_DIR"] = str(folder / "config")
    env["CARGO_HOME"] = str(analysis.stand_in(folder))
    env.update(rust_src.environment())
    # The type analysis calls these a dozen times at each start; without rustup's detour that is 0.3 s less.
    programs = toolchain / "bin"
    env["CARGO"], env["RUSTC"], env["RUSTUP_TOOLCHAIN"] = (
        str(programs / "cargo"),
        str(programs / "rustc"),
        str(toolchain),
    )
    old = [env["PATH"]] if env.get("PATH") else []
    env["PATH"] = os.pathsep.join([str(programs), *old, str(evcxr.parent), str(paths.cargo_bin()), str(paths.PROGRAMS)])
    # A copy of the course that was packed without modes does without.
    if all(os.access(script, os.X_OK) for script in (CELLS, CELLS_CARGO, CELLS_PATH / "rustup")):
        env["PATH"] = os.pathsep.join([str(CELLS_PATH), env["PATH"]])
        env["GPULAB_CELLS_CARGO"] = str(CELLS_CARGO)
        env["GPULAB_CRATES"] = "\n".join(str(folder) for folder in (paths.CRATE, paths.CRATES))
    if os.access(RUSTC_ANSWERS, os.X_OK) and os.access(env["RUSTC"], os.X_OK):
        known = [env["RUSTC"].encode(), paths.state_of(Path(env["RUSTC"])).encode()]
        answers = paths.GENERATED / "rustc" / _digest(known)
        env["GPULAB_RUSTC"], env["GPULAB_RUSTC_ANSWERS"] = env["RUSTC"], str(answers)
        env["RUSTC"] = str(RUSTC_ANSWERS)
    rust = paths.rust_libraries(toolchain)
    old = [env["LD_LIBRARY_PATH"]] if env.get("LD_LIBRARY_PATH") else []
    env["LD_LIBRARY_PATH"] = os.pathsep.join([str(paths.LIBRARIES), *map(str, candle.libraries()), *rust, *old])
    env["DYLD_FALLBACK_LIBRARY_PATH"] = os.pathsep.join([*rust, "/usr/local/lib", "/usr/lib"])
    return env


def with_lock(code: str) -> str:
    """The same cell, with Cargo.lock put back after each `:dep` line.

    evcxr tries each of these lines alone first, in a crate with that one dependency; cargo then drops from the lock what
    the others need, and would take the newest versions of it afterwards.
    """
    return DEP.sub(lambda line: f"{line[0]}\n{PUT_LOCK_BACK}", code)


def prelude(lines: str | None) -> str:
    """What evcxr runs at its start; `lines` are the `:dep` lines to load ahead of the first cell, if any."""
    # A copy of the course that was packed without modes does without.
    cells = [f":build_env RUSTC_WORKSPACE_WRAPPER={CELLS}"] if os.access(CELLS, os.X_OK) else []
    return "\n".join([analysis.restore(), *cells, PUT_LOCK_BACK, *([with_lock(lines), LOAD_TYPES] if lines else [])])


def write_config(folder: Path, lines: str | None) -> None:
    """The kernel's settings; a reader's own evcxr settings do not reach it."""
    analysis.prepare(folder)
    # evcxr writes a `.cargo` of its own into the folder itself.
    above = folder.parent / ".cargo"
    above.mkdir(exist_ok=True)
    shutil.copyfile(CARGO, above / "config.toml")
    config = folder / "config"
    config.mkdir(exist_ok=True)
    (config / "evcxr.toml").write_text(f"[evcxr]\nprelude = '''\n{prelude(lines)}\n'''\n", encoding="utf-8")


def dep_lines(notebook: dict) -> str | None:
    """The `:dep` lines of a notebook's first code cell, one below the other; None where they name no crate of ours."""
    for cell in notebook.get("cells", []):
        if cell.get("cell_type") == "code":
            lines = (line.strip() for line in "".join(cell.get("source", [])).splitlines())
            found = [line for line in lines if re.match(r":dep\s", line)]
            return "\n".join(found) if any(re.match(r":dep\s+gpulab\b", line) for line in found) else None
    return None


def serves(warmed: Iterable[str], lines: str) -> bool:
    """Whether what was built for one of the `warmed` sets of `:dep` lines is all that these need.

    cargo builds a crate again where other crates ask for more of its features: test_lines.py compares the lessons' sets
    with each other. Beside candle and polars all others are such crates.
    """
    asked = set(lines.splitlines())
    return any(asked <= set(one.splitlines()) and is_large(one) == is_large(lines) for one in warmed)


def is_large(lines: str) -> bool:
    """Whether these `:dep` lines bring candle or polars, which take minutes to build."""
    return bool(LARGE.search(lines))


def together(sets: Iterable[str]) -> list[list[str]]:
    """Sets of `:dep` lines, grouped so that one build makes all that each set of a group needs.

    candle is in no build beside polars, nor either in one with sets that have none: cargo would add their features up. And no
    crate is loaded with two lists of features.
    """
    groups: list[list[str]] = []
    for one in dict.fromkeys(sets):
        for group in groups:
            lines = union([*group, one]).splitlines()
            alike = len({line.split()[1] for line in lines}) == len(lines)
            if alike and _kind(one) == _kind(group[0]):
                group.append(one)
                break
        else:
            groups.append([one])
    return groups


def _kind(lines: str) -> str:
    """What it stands on: candle, polars, or neither."""
    found = set(LARGE.findall(lines))
    return " and ".join(sorted({"polars" if name == "tables" else "candle" for name in found}))


def union(sets: Iterable[str]) -> str:
    """All lines of some sets, each once."""
    return "\n".join(dict.fromkeys(line for one in sets for line in one.splitlines()))


def crates(lines: str) -> str:
    """The names of the crates that `:dep` lines load, for a message."""
    return ", ".join(re.findall(r"^:dep\s+([\w-]+)", lines, flags=re.MULTILINE))


def _crates() -> list[Path]:
    """The folders of all crates of the workspace."""
    return [paths.CRATE, *sorted(file.parent for file in paths.CRATES.glob("*/Cargo.toml"))]


def _manifests() -> list[Path]:
    return [paths.ROOT / "Cargo.toml", paths.ROOT / "Cargo.lock", *(crate / "Cargo.toml" for crate in _crates())]


def source_files() -> list[Path]:
    """All that the crates are built from. CUDA C is no part of it: it is read when a notebook runs."""
    folders = (crate / name for crate in _crates() for name in ("src", "include"))
    found = [file for folder in folders for file in folder.rglob("*") if file.is_file()]
    single = [*_manifests(), *(crate / "build.rs" for crate in _crates())]
    return sorted(found + [file for file in single if file.is_file()])


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:12]


def compiler_key(rustc: str) -> str:
    """Changes with whatever makes cargo build every crate again."""
    settings = [rustc, paths.EVCXR_VERSION, repr(sorted(profile().items())), repr(sorted(candle.flags().items()))]
    return _digest(text.encode() for text in settings)


def dependencies_key(rustc: str) -> str:
    """Changes with whatever may make cargo build some dependencies again."""
    return _digest([compiler_key(rustc).encode(), *(f.read_bytes() for f in [CARGO, *_manifests()] if f.is_file())])


def sources_key() -> str:
    """Changes with the crates' own sources, and where they lie: cargo builds a crate that moved again."""
    parts = [str(paths.ROOT).encode()]
    for file in source_files():
        parts += [str(file.relative_to(paths.ROOT)).encode(), file.read_bytes()]
    return _digest(parts)


def newest_source() -> float:
    """When the sources changed last: cargo goes by times, so a touched file is a rebuild."""
    return max((file.stat().st_mtime for file in source_files()), default=0.0)


def warmed() -> tuple[Path | None, dict]:
    """The warmed build that is there: its folder, and its stamp (keys, when it was built, for which sets of `:dep` lines)."""
    found = [(folder, paths.read_json(folder / STAMP)) for folder in paths.WARM.glob("[0-9a-f]*-*")]
    complete = [
        (folder, stamp) for folder, stamp in found if {"dependencies", "sources", "built", "lines"} <= set(stamp)
    ]
    return max(complete, key=lambda pair: pair[1]["built"], default=(None, {}))
