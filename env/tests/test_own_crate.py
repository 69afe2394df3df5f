"""The template for a crate of one's own, copied out of the course as docs/own_crate.md says: it builds with cudarc alone."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest
from env.paths import CRATES, ROOT, TARGET

PAGE = ROOT / "docs" / "own_crate.md"


def test_the_page_names_each_file_of_the_template():
    page = PAGE.read_text(encoding="utf-8")
    files = [path for path in (CRATES / "template").rglob("*.*") if path.is_file() and "target" not in path.parts]
    assert len(files) >= 7
    assert "Cargo.toml" in page and "build.rs" in page and "kernels/saxpy.cu" in page and "tests/simulator.rs" in page


def test_a_copy_builds_alone_and_says_what_was_skipped(tmp_path):
    if shutil.which("cargo") is None:
        pytest.skip("no cargo")
    folder = tmp_path / "my-kernels"
    shutil.copytree(CRATES / "template", folder)
    shutil.copy(ROOT / "Cargo.lock", folder)

    def cargo(*arguments: str) -> subprocess.CompletedProcess:
        # With its own build folder, the second time takes a second.
        environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET / "own-crate")}
        environment.pop("REQUIRE_GPU", None)
        return subprocess.run(
            ["cargo", *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )

    assert cargo("remove", "--dev", "gpulab", "--offline").returncode == 0
    (folder / "tests" / "simulator.rs").unlink()
    manifest = (folder / "Cargo.toml").read_text(encoding="utf-8")
    assert "gpulab =" not in manifest and manifest.count("cudarc =") == 1
    done = cargo("test", "--offline")
    assert done.returncode == 0, done.stderr
    if "GPU 0" in done.stdout or "2 passed" in done.stdout:
        return
    assert "ignored, there is no NVIDIA GPU here" in done.stdout and "2 ignored" in done.stdout, done.stdout
    run = cargo("run", "--offline")
    assert run.returncode != 0 and "NVIDIA's driver (libcuda) was not found" in run.stderr, run.stderr
