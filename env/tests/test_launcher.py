"""The kernel's start: copies that share nothing that changes, dead kernels' folders, and what a reader is told."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from env import launcher, paths
from env.kernel_cache import lock, recipe
from env.kernel_cache.tree import linked_copy

PLAIN = recipe.PLAIN
FIRST = PLAIN.splitlines()[0]


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Each file's inode and bytes."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): (file.stat().st_ino, file.read_bytes()) for file in files}


def test_only_what_never_changes_is_shared(tmp_path: Path) -> None:
    old, deps = tmp_path / "old", tmp_path / "old/target/debug/deps"
    deps.mkdir(parents=True)
    for name in ("liba-1.rlib", "liba-1.rmeta", "libm-2.so", "a-1.d", "libctx.so", "ctx.d"):
        (deps / name).write_text(name)
    notes = ("lib-a", "lib-a.json", "dep-lib-a")
    for name in (
        "incremental/gpulab-3/x.bin",
        *(f".fingerprint/a-1/{note}" for note in notes),
        ".fingerprint/ctx-9/lib-ctx",
        ".cargo-lock",
        "build/a-1/out/table.json",
    ):
        (deps.parent / name).parent.mkdir(parents=True, exist_ok=True)
        (deps.parent / name).write_text(name)
    os.utime(deps.parent / ".fingerprint/a-1/lib-a", (1, 1))
    linked_copy(old, tmp_path / "new")
    before, after = contents(old), contents(tmp_path / "new")
    shared = {name for name in after if after[name] == before[name]}
    assert shared == {f"target/debug/deps/{name}" for name in ("liba-1.rlib", "liba-1.rmeta", "libm-2.so")}
    copied = (".fingerprint/a-1/lib-a", ".fingerprint/a-1/dep-lib-a", ".cargo-lock", "build/a-1/out/table.json")
    assert set(after) - shared == {f"target/debug/{name}" for name in copied}
    assert (tmp_path / "new/target/debug/.fingerprint/a-1/lib-a").stat().st_mtime == 1
    linked_copy(old, tmp_path / "whole", incremental=True)
    assert "target/debug/incremental/gpulab-3/x.bin" in contents(tmp_path / "whole")


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
def test_a_rebuild_in_a_copy_leaves_the_original_alone(tmp_path: Path) -> None:
    """With cargo itself: that it replaces libraries, and never writes into them, is what the links rest on."""
    crate, old, new = tmp_path / "crate", tmp_path / "old", tmp_path / "new"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "small"\nedition = "2021"\n[workspace]\n')
    source = crate / "src/lib.rs"
    source.write_text("pub fn answer() -> u32 { 1 }")

    def build(target: Path) -> str:
        command = ["cargo", "build", "--offline", "--lib", "--manifest-path", str(crate / "Cargo.toml")]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "CARGO_TERM_COLOR": "never"}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr

    assert "Compiling" in build(old)
    before = contents(old)
    linked_copy(old, new)
    assert "Compiling" not in build(new)
    time.sleep(0.01)
    source.write_text("pub fn answer() -> u32 { 2 }")
    assert "Compiling" in build(new)
    assert contents(old) == before


def test_folders_of_dead_kernels_go_and_others_stay(tmp_path: Path) -> None:
    code = "import sys; from env.kernel_cache import lock; from pathlib import Path; lock.take(Path(sys.argv[1])); print('held', flush=True); input()"
    alive, dead = tmp_path / "alive", tmp_path / "dead"
    for folder in (alive, dead):
        folder.mkdir()
    (dead / launcher.OWNER).touch()
    command = [sys.executable, "-c", code, str(alive / launcher.OWNER)]
    with subprocess.Popen(command, cwd=paths.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        launcher.remove_dead(tmp_path)
        assert [folder.name for folder in tmp_path.iterdir()] == ["alive"]
        holder.kill()
    launcher.remove_dead(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_lock_outlives_the_program_that_took_it(tmp_path: Path) -> None:
    """The launcher turns into another program, which must go on holding the folder."""
    code = "import os, sys; from env.kernel_cache import lock; from pathlib import Path; lock.take(Path(sys.argv[1]))\n"
    code += "os.execvp('sh', ['sh', '-c', 'echo held; exec sleep 30'])"
    owner = tmp_path / "owner.lock"
    command = [sys.executable, "-c", code, str(owner)]
    holder = subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert not lock.is_free(owner)
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.wait()
    assert lock.is_free(owner)


def test_a_readers_own_build_settings_do_not_reach_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "setup.json")
    base = {"RUSTFLAGS": "-O", "CARGO_INCREMENTAL": "0", "CARGO_BUILD_TARGET": "x", "CARGO_PROFILE_DEV_DEBUG": "2"}
    kept = {"CARGO_BUILD_JOBS": "2", "PATH": "/bin", "LD_LIBRARY_PATH": "/l", "HOME": "/h"}
    made = recipe.environment({**base, **kept, "EVCXR_TMPDIR": "/old"}, Path("/k"), Path("/tools"), Path("/e/evcxr"))
    assert not {"RUSTFLAGS", "CARGO_INCREMENTAL", "CARGO_BUILD_TARGET", "CARGO_PROFILE_DEV_DEBUG"} & set(made)
    assert (made["CARGO_BUILD_JOBS"], made["HOME"]) == ("2", "/h")
    # The type analysis looks for cargo there; test_analysis.py says how builds get the reader's own.
    assert made["CARGO_HOME"] == "/k-cargo"
    assert made["CARGO_PROFILE_DEV_OVERFLOW_CHECKS"] == "false"
    assert made["EVCXR_TMPDIR"] == "/k"
    assert made["PATH"].split(":")[:3] == [str(recipe.CELLS_PATH), "/tools/bin", "/bin"]
    assert str(paths.PROGRAMS) in made["PATH"].split(":")
    assert made["LD_LIBRARY_PATH"] == f"{paths.LIBRARIES}:/l"


def test_a_quick_build_is_the_set_ups_decision_and_no_other_build_serves_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paths, "STATE", tmp_path / "setup.json")
    monkeypatch.setenv("GPULAB_QUICK_BUILD", "1")
    kernel = Path("/k"), Path("/tools"), Path("/e/evcxr")
    # A reader's polars is optimised as far as it goes, whatever the terminal that starts the kernel says.
    assert "CARGO_PROFILE_DEV_LTO" not in recipe.environment(dict(os.environ), *kernel)
    before = recipe.compiler_key("rustc 1")
    paths.write_json(paths.STATE, {"quick": True})
    made = recipe.environment({"CARGO_INCREMENTAL": "1"}, *kernel)
    assert made["CARGO_PROFILE_DEV_LTO"] == "off"
    # What cargo builds for the tests; a cell's build goes on from the one before.
    assert recipe.profile()["CARGO_INCREMENTAL"] == "0"
    assert "CARGO_INCREMENTAL" not in made
    assert made["GPULAB_CELL_FLAGS"] == recipe.QUICK_CELLS
    assert recipe.compiler_key("rustc 1") != before
    paths.write_json(paths.STATE, {"quick": False})
    # A reader's own says nothing.
    assert "GPULAB_CELL_FLAGS" not in recipe.environment({"GPULAB_CELL_FLAGS": "-Copt-level=0"}, *kernel)
    assert recipe.compiler_key("rustc 1") == before


def test_cells_alone_are_compiled_in_a_way_of_their_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert f":build_env RUSTC_WORKSPACE_WRAPPER={recipe.CELLS}" in recipe.prelude(None).splitlines()

    def called() -> str:
        command = [recipe.CELLS, "echo", "--crate-name", "ctx"]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    monkeypatch.delenv("GPULAB_CELL_FLAGS", raising=False)

    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text('pub extern "C" fn run_user_code_3(mut store: *mut Store) {}')
    assert called() == "--crate-name ctx -Clto=off\n"
    with monkeypatch.context() as quick:
        quick.setenv("GPULAB_CELL_FLAGS", recipe.QUICK_CELLS)
        assert called() == f"--crate-name ctx -Clto=off {recipe.QUICK_CELLS}\n"
    # As evcxr writes it for a cell without statements.
    end = "mut x: *mut std::os::raw::c_void) -> *mut std::os::raw::c_void {x}"
    (tmp_path / "src" / "lib.rs").write_text(f'fn own() {{}}\npub extern "C" fn run_user_code_4(\n{end}\n')
    assert called() == "--crate-name ctx -Cincremental=target/incremental -Clto=off\n"
    # Unpacked without its mode, cargo could not start it.
    monkeypatch.setattr(recipe, "CELLS", tmp_path / "cells_rustc.sh")
    (tmp_path / "cells_rustc.sh").touch(0o644)
    assert "WRAPPER" not in recipe.prelude(None)


def test_settings_by_package_name_each_crate_and_agree_with_the_tests_builds(tmp_path: Path) -> None:
    def packages(file: Path) -> dict[str, str]:
        return dict(re.findall(r"^([\w-]+) = (\{.*\})$", file.read_text(encoding="utf-8"), re.MULTILINE))

    ours, tests = packages(recipe.CARGO), packages(paths.ENV / "ci" / "cargo.toml")
    members = {
        re.search(r'^name = "(.+)"', (folder / "Cargo.toml").read_text(), re.MULTILINE)[1]
        for folder in recipe._crates()
    }
    # What no notebook loads: the program, the book's pages, and the reader's own crate; the device library is compiled for GPUs.
    others = {"gpulab-cli", "gpulab-web", "my-kernels", "gpulab-device"}
    assert set(ours) - {"cudarc"} == members - others
    # A dependency with other settings in the tests would be compiled twice.
    assert tests["cudarc"] == ours["cudarc"]
    build = tmp_path / "kernel" / "build"
    (build / "config").mkdir(parents=True)
    recipe.write_config(build, None)
    assert packages(tmp_path / "kernel" / ".cargo" / "config.toml") == ours


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout: a crate, its manifests, and a lesson."""
    for name, folder in (
        ("ROOT", ""),
        ("CRATE", "support-crate"),
        ("CRATES", "crates"),
        ("WARM", ".gpulab/warm"),
        ("NOTEBOOKS", "notebooks"),
    ):
        monkeypatch.setattr(paths, name, tmp_path / folder)
    for name in (
        "Cargo.toml",
        "Cargo.lock",
        "support-crate/Cargo.toml",
        "support-crate/src/lib.rs",
        "crates/kernels/Cargo.toml",
        "crates/kernels/src/lib.rs",
        "crates/kernels/sum/01_first.cu",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "notebooks").mkdir()
    for name, lines in (("00_welcome", FIRST), ("11_sum", PLAIN)):
        cells = [{"cell_type": "code", "source": f"{lines}\nuse gpulab::prelude::*;"}]
        (tmp_path / f"notebooks/{name}.ipynb").write_text(json.dumps({"cells": cells}))
    return tmp_path


def test_the_keys_follow_what_they_stand_for(checkout: Path) -> None:
    dependencies, sources = recipe.dependencies_key("rustc 1.95"), recipe.sources_key()
    (checkout / "crates/kernels/sum/01_first.cu").write_text("changed")
    assert recipe.sources_key() == sources, "a kernel's file is read when a notebook runs"
    for name in ("support-crate/src/lib.rs", "crates/kernels/src/lib.rs"):
        sources = recipe.sources_key()
        (checkout / name).write_text("changed")
        assert recipe.dependencies_key("rustc 1.95") == dependencies
        assert recipe.sources_key() != sources
    assert recipe.dependencies_key("rustc 1.96") != dependencies
    compiler = recipe.compiler_key("rustc 1.95")
    for name in ("crates/kernels/Cargo.toml", "Cargo.lock"):
        dependencies = recipe.dependencies_key("rustc 1.95")
        (checkout / name).write_text("changed")
        assert recipe.dependencies_key("rustc 1.95") != dependencies
    # What was built before is still good for the crates that did not change.
    assert recipe.compiler_key("rustc 1.95") == compiler != recipe.compiler_key("rustc 1.96")


def test_a_lesson_is_loaded_ahead_only_when_that_needs_no_build(checkout: Path) -> None:
    stamp = {"lines": [PLAIN], "sources": recipe.sources_key(), "built": time.time() + 1}
    folder = checkout / "notebooks"
    assert launcher.preload(stamp, "notebooks/11_sum.ipynb", folder) == PLAIN
    # Fewer of the crates that were built together need no build either.
    assert launcher.preload(stamp, "notebooks/00_welcome.ipynb", folder) == FIRST
    assert launcher.preload({**stamp, "lines": [FIRST]}, "notebooks/11_sum.ipynb", folder) is None
    assert launcher.preload(stamp, "", folder) is None
    assert launcher.preload(stamp, "notebooks/none.ipynb", folder) is None
    assert launcher.preload({**stamp, "lines": []}, "00_welcome.ipynb", folder) is None
    assert launcher.preload({**stamp, "built": 1.0}, "00_welcome.ipynb", folder) is None
    (checkout / "support-crate/src/lib.rs").write_text("changed")
    assert launcher.preload(stamp, "00_welcome.ipynb", folder) is None


def test_the_newest_complete_build_is_used(checkout: Path) -> None:
    assert recipe.warmed() == (None, {})
    for name, built in (("aa-1", 1), ("bb-2", 2)):
        stamp = {"dependencies": name, "sources": name, "lines": [], "built": built}
        paths.write_json(checkout / ".gpulab/warm" / name / recipe.STAMP, stamp)
    (checkout / ".gpulab/warm/cc-3").mkdir()
    (checkout / ".gpulab/warm/building").mkdir()
    assert recipe.warmed()[0] == checkout / ".gpulab/warm/bb-2"


def test_a_changed_rust_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/rustc").touch()
    state = {"toolchain": str(tmp_path), "rustc_time": (tmp_path / "bin/rustc").stat().st_mtime}
    assert launcher.toolchain(state) == tmp_path
    with pytest.raises(launcher.NotReadyError, match="Rust was updated"):
        launcher.toolchain({**state, "rustc_time": 1})


def test_a_notebook_opened_before_the_set_up_says_what_to_do(tmp_path: Path) -> None:
    """The launcher in a checkout without a set-up, as Jupyter starts it."""
    from jupyter_client.manager import KernelManager

    env = tmp_path / "env"
    shutil.copytree(paths.ENV, env, ignore=shutil.ignore_patterns("tests", "__pycache__"))
    manager = KernelManager(kernel_name="python3")
    assert manager.kernel_spec is not None
    manager.kernel_spec.argv = [sys.executable, "-m", "env.launcher", "{connection_file}"]
    manager.start_kernel(cwd=str(tmp_path), stderr=subprocess.DEVNULL)
    client = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=60)
        errors: list[dict] = []
        hook = lambda m: errors.append(m["content"]) if m["msg_type"] == "error" else None
        reply = client.execute_interactive('println!("hello")', output_hook=hook, timeout=60)
        assert reply["content"]["status"] == "error"
        said = "\n".join(errors[0]["traceback"])
        assert "the set-up has not been run" in said
        assert "run `make setup`" in said
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
