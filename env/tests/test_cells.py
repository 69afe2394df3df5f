"""What evcxr gets as cargo: rustc called as for the cell before, and cargo itself where something has changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from env.command import output
from env.kernel_cache import recipe

TARGET = next(line.removeprefix("host: ") for line in (output(["rustc", "-vV"]) or "").splitlines() if "host: " in line)
# As evcxr writes it.
MANIFEST = """
[package]
name = "ctx"
version = "1.0.0"
edition = "2024"

[lib]
crate-type = ["cdylib"]
path = "src/lib.rs"

[profile.dev]
incremental = true

[dependencies]
mine = {{ path = "{mine}" }}
"""


class Cells:
    """A kernel's folder, with a crate that it loads, and a cargo that counts its calls."""

    def __init__(self, home: Path) -> None:
        self.home, self.mine, self.build = home, home / "a crate's folder", home / "build"
        for folder in (self.mine, self.build):
            (folder / "src").mkdir(parents=True)
        (self.mine / "Cargo.toml").write_text('[package]\nname = "mine"\nversion = "0.1.0"\nedition = "2024"\n')
        self.of_the_crate(7)
        (self.build / "Cargo.toml").write_text(MANIFEST.format(mine=self.mine))
        real = Path((output(["rustc", "--print", "sysroot"]) or "").strip()) / "bin"
        cargo = home / "cargo"
        cargo.write_text(f'#!/bin/sh\necho asked >>"{home}/calls"\nexec "{real}/cargo" "$@"\n')
        cargo.chmod(0o755)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not recipe.DROPPED.fullmatch(name)},
            "CARGO": str(cargo),
            "RUSTC": str(real / "rustc"),
            "CARGO_TARGET_DIR": "target",
            "RUSTC_WORKSPACE_WRAPPER": str(recipe.CELLS),
            "GPULAB_CRATES": str(home / "none"),
        }

    def of_the_crate(self, value: int) -> None:
        (self.mine / "src" / "lib.rs").write_text(f"pub fn it() -> i32 {{ {value} }}\n")

    def calls(self) -> int:
        """How often cargo was called."""
        file = self.home / "calls"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def run(self, body: str, **more: str) -> tuple[int, list[dict], str]:
        """Compiles a cell: the status, what evcxr reads as JSON, and what the library that was made returns."""
        (self.build / "src" / "lib.rs").write_text(
            f'#[unsafe(no_mangle)]\npub extern "C" fn run() -> i32 {{ {body} }}\n'
        )
        done = subprocess.run(
            [recipe.CELLS_CARGO, "build", "--target", TARGET, "--message-format=json"],
            cwd=self.build,
            env={**self.environment, **more},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("{")]
        said = [json.loads(line) for line in lines]
        files = [one["filenames"][0] for one in said if "filenames" in one and one["target"]["name"] == "ctx"]
        if not files:
            return done.returncode, said, ""
        # evcxr gives each a name of its own, and loads it.
        kept = Path(files[-1]).with_name(f"code_{len(list(Path(files[-1]).parent.glob('code_*')))}")
        Path(files[-1]).rename(kept)
        call = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).run())"
        loaded = subprocess.run(
            [sys.executable, "-c", call, kept], env=self.environment, capture_output=True, text=True, check=True
        )
        return done.returncode, said, loaded.stdout.strip()


@pytest.fixture
def cells(tmp_path: Path) -> Cells:
    return Cells(tmp_path)


def test_cargo_is_asked_once_and_every_cell_is_its_own(cells: Cells) -> None:
    assert [cells.run(f"mine::it() + {at}")[2] for at in range(4)] == ["7", "8", "9", "10"]
    assert cells.calls() == 1
    # What was loaded before is still what it was.
    kept = sorted((cells.build / "target" / TARGET / "debug").glob("code_*"))
    assert len({file.stat().st_ino for file in kept}) == len({file.read_bytes() for file in kept}) == 4


def test_an_error_is_told_as_cargo_tells_it_and_the_next_cell_runs(cells: Cells) -> None:
    told = []
    for _ in range(2):
        status, said, _ = cells.run('"seven"')
        assert status == 101
        # cargo puts rustc's message into one of its own; evcxr reads both.
        said = [one["message"] if isinstance(one.get("message"), dict) else one for one in said]
        told.append([one for one in said if one.get("message") == "mismatched types"])
        assert cells.run("mine::it()")[2] == "7"
    first, again = told
    assert first[0]["spans"] == again[0]["spans"]
    assert first[0]["code"]["code"] == again[0]["code"]["code"] == "E0308"
    # The first one was cargo's, as no cell had gone well before.
    assert cells.calls() == 2


def test_what_cargo_would_see_is_left_to_cargo(cells: Cells) -> None:
    cells.run("mine::it()")
    cells.of_the_crate(70)
    assert cells.run("mine::it()")[2] == "70"
    assert cells.calls() == 2
    cells.run("mine::it()", CARGO_PROFILE_DEV_OPT_LEVEL="1")
    assert cells.calls() == 3
    with (cells.build / "Cargo.toml").open("a") as file:
        file.write("[features]\nfast = []\n")
    assert cells.run("mine::it() + 1")[2] == "71"
    assert cells.calls() == 4
    (cells.build / "Cargo.lock").unlink()
    assert cells.run("mine::it() + 2")[2] == "72"
    assert cells.calls() == 5
    assert cells.run("mine::it() + 3")[2] == "73"
    assert cells.calls() == 5


def test_the_stand_in_for_rustup_passes_on_all_else(cells: Cells) -> None:
    folder = cells.home / "real"
    folder.mkdir()
    (folder / "rustup").write_text('#!/bin/sh\necho "the real one: $*"\n')
    (folder / "rustup").chmod(0o755)
    path = os.pathsep.join([str(recipe.CELLS_PATH), str(folder), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "GPULAB_CELLS_CARGO": "/x/cargo", "RUSTC": "/x/rustc"}
    for question, answer in {
        "which cargo": "/x/cargo",
        "which rustc": "/x/rustc",
        "show": "the real one: show",
    }.items():
        asked = ["rustup", *question.split()]
        assert (
            subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.strip() == answer
        )
