"""What `make test` takes from builds of others: dependencies alone, and from a cache only what is whole and fits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from env import paths
from env.ci import cache
from env.kernel_cache import build, renew
from env.kernel_cache.tree import dependencies

ONE, TWO, CHECKED = "0123456789abcdef", "fedcba9876543210", "00000000deadbeef"
THEIRS = {
    f"deps/libserde-{ONE}.rlib",
    f"deps/libserde-{ONE}.rmeta",
    f".fingerprint/serde-{ONE}/lib-serde",
    f".fingerprint/libc-{TWO}/run-build-script",
    f".fingerprint/libc-{TWO}/build-script-build-script-build",
    f"build/libc-{TWO}/out/made.rs",
}
# What nobody reads again.
NOTES = {f"deps/serde-{ONE}.d", f".fingerprint/serde-{ONE}/lib-serde.json"}
OF_A_CHECK = {f"deps/libserde-{CHECKED}.rmeta", f".fingerprint/serde-{CHECKED}/lib-serde"}
OURS = {
    f"deps/libgpulab_nn-{ONE}.rlib",
    f"deps/warpsim-{ONE}.d",
    f".fingerprint/gpulab-nn-{ONE}/lib-gpulab_nn",
    f".fingerprint/my-kernels-{TWO}/build-script-build-script-build",
    f"deps/libmy_kernels-{ONE}.rlib",
    f"deps/ladder-{ONE}",
    "incremental/x/y.bin",
    "gpulab",
}


def made(folder: Path) -> Path:
    """A folder that cargo has built in."""
    for name in THEIRS | NOTES | OF_A_CHECK | OURS:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    return folder


def files(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_only_dependencies_are_copied(tmp_path: Path) -> None:
    built = made(tmp_path / "built")
    dependencies(built, tmp_path / "all", renew.CRATES)
    assert files(tmp_path / "all") == THEIRS | OF_A_CHECK
    dependencies(built, tmp_path / "code", renew.CRATES, checked=False)
    assert files(tmp_path / "code") == THEIRS


def test_a_warmed_build_begins_with_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "target/debug")
    made(tmp_path / "target/x86_64-unknown-linux-gnu/debug")
    monkeypatch.setattr(build, "WORK", tmp_path / "building")
    monkeypatch.setenv(build.OTHERS, str(tmp_path / "target"))
    build._prepare(None, "compiler")
    begun = files(tmp_path / "building")
    folders = ("target/debug", "target/x86_64-unknown-linux-gnu/debug")
    assert begun == {f"{folder}/{name}" for folder in folders for name in THEIRS} | {"compiler"}


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The build folder of a clone with a cache that holds its dependencies."""
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "notes.txt").write_text("of somebody else")
    monkeypatch.setenv("GPULAB_CI_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(paths, "TARGET", tmp_path / "target")
    monkeypatch.setattr(cache, "output", lambda _: "rustc 1")
    monkeypatch.setattr(cache, "ROOM", 0)
    made(tmp_path / "target" / "debug")
    cache.keep({"A": "1"})
    return tmp_path


def entries(clone: Path) -> list[Path]:
    return [entry for entry in (clone / "cache").iterdir() if entry.is_dir()]


def test_the_next_clone_gets_what_was_built(clone: Path) -> None:
    assert not cache.restore({"A": "1"}), "into a clone in which something is built"
    shutil.rmtree(paths.TARGET)
    assert not cache.restore({"A": "2"}) and not paths.TARGET.exists(), "of other settings"
    elsewhere = {"A": "1", "LD_LIBRARY_PATH": str(clone / "another-clone")}
    assert cache.restore(elsewhere) and files(paths.TARGET / "debug") == THEIRS | OF_A_CHECK


def test_what_cargo_writes_in_a_clone_leaves_the_entry_whole(clone: Path) -> None:
    for _ in range(2):
        shutil.rmtree(paths.TARGET)
        assert cache.restore({"A": "1"})
        for note in (paths.TARGET / "debug" / ".fingerprint").rglob("*"):
            if note.is_file():
                note.write_text("of this clone")


def test_a_damaged_entry_is_thrown_away(clone: Path) -> None:
    (library,) = (clone / "cache").rglob("*.rlib")
    # A file of its own: the clone's is a link to the same one.
    library.unlink()
    library.write_text("damaged")
    shutil.rmtree(paths.TARGET)
    assert not cache.restore({"A": "1"}) and not entries(clone) and not paths.TARGET.exists()


def test_there_is_one_entry_and_nothing_else_is_touched(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = entries(clone)
    cache.keep({"A": "2"})
    (after,) = entries(clone)
    assert before != after and (clone / "cache" / "notes.txt").exists()
    monkeypatch.setattr(cache, "ROOM", 1 << 60)
    cache.keep({"A": "3"})
    assert after in entries(clone), "without room what is there stays"
    monkeypatch.delenv("GPULAB_CI_CACHE")
    assert not cache.restore({"A": "2"})
