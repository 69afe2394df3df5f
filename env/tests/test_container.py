"""The container's files, as far as they can be read without building it; `make test-container` builds it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest
import yaml
from env import lab, paths
from env.console import ToolError
from env.container import builder, engine
from env.kernel_cache import candle, recipe, renew
from env.setup import nvrtc, onnxruntime, rustup

DOCKERFILE = paths.ENV / "Dockerfile.cuda"
SCRIPTS = paths.ENV / "container"
PROGRAMS = Path(sysconfig.get_path("scripts"))
HEAVY = ("system.sh", "rust.sh", "setup.py", "course.sh", "tensorrt.sh")


def instructions() -> list[str]:
    """The Dockerfile's, one a line."""
    text = re.sub(r"\\\n\s*", "", DOCKERFILE.read_text(encoding="utf-8"))
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_dockerfile_keeps_the_rules_of_hadolint() -> None:
    done = subprocess.run([PROGRAMS / "hadolint", DOCKERFILE], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stdout, done.stdout + done.stderr


def test_hadolint_finds_a_planted_mistake(tmp_path: Path) -> None:
    wrong = tmp_path / "Dockerfile"
    wrong.write_text("FROM ubuntu:24.04\nRUN cd /srv && sudo make\n")
    done = subprocess.run([PROGRAMS / "hadolint", wrong], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "DL3004" in done.stdout


@pytest.mark.skipif(not (PROGRAMS / "shellcheck").exists(), reason="no package for Linux on ARM")
def test_the_shell_scripts_keep_the_rules_of_shellcheck(tmp_path: Path) -> None:
    scripts = sorted(SCRIPTS.glob("*.sh"))
    assert len(scripts) > 4 and all(os.access(script, os.X_OK) for script in scripts)
    done = subprocess.run([PROGRAMS / "shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    (tmp_path / "wrong.sh").write_text("#!/bin/sh\nrm -r $1\n")
    done = subprocess.run([PROGRAMS / "shellcheck", tmp_path / "wrong.sh"], capture_output=True, check=False)
    assert done.returncode == 1


def test_the_file_at_the_root_is_the_same_one() -> None:
    assert (paths.ROOT / "Dockerfile.cuda").resolve() == DOCKERFILE


def test_the_base_is_pinned_and_so_are_rust_and_its_kernel() -> None:
    given = dict(line.removeprefix("ARG ").split("=", 1) for line in instructions() if line.startswith("ARG "))
    assert re.fullmatch(r"nvidia/cuda:[\w.-]+-ubuntu24\.04@sha256:[0-9a-f]{64}", given["BASE"])
    assert given["EVCXR"] == paths.EVCXR_VERSION and re.fullmatch(r"\d+\.\d+\.\d+", given["RUST"])
    assert given["TENSORRT"] == "0"


def test_rustup_is_the_set_ups_own_with_its_sums() -> None:
    script = (SCRIPTS / "rust.sh").read_text(encoding="utf-8")
    assert re.search(r"^rustup=(\S+)$", script, flags=re.MULTILINE)[1] == rustup.VERSION
    sums = dict(re.findall(r"^(x86_64|aarch64)\) sum=(\w+) ;;$", script, flags=re.MULTILINE))
    assert sums == {machine: rustup.SHA256[f"{machine}-unknown-linux-gnu"] for machine in ("x86_64", "aarch64")}


def test_tensorrt_is_the_release_that_onnx_runtime_is_built_for() -> None:
    release = onnxruntime.TENSORRT[onnxruntime.CUDA_13].partition("==")[2]
    assert f"\nversion={release}-1+cuda13." in (SCRIPTS / "tensorrt.sh").read_text(encoding="utf-8")


def test_a_changed_notebook_comes_after_all_that_takes_long() -> None:
    lines = instructions()
    last = [number for number, line in enumerate(lines) if line.startswith("RUN") and any(n in line for n in HEAVY)][-1]
    notebooks = [n for n, line in enumerate(lines) if line.startswith("COPY") and re.search(r" (notebooks|\.) ", line)]
    own = [number for number in notebooks if number > lines.index("FROM system AS lessons") + 3]
    assert own and min(own) > last, "what a lesson's text changes comes before a heavy layer"
    # The one layer that reads notebooks before leaves of them their `:dep` lines.
    assert sum("--from=lessons" in line for line in lines) == 1


def test_only_the_lines_that_load_the_crates_are_left_of_a_notebook(tmp_path: Path) -> None:
    call = [sys.executable, SCRIPTS / "lesson_lines.py", paths.NOTEBOOKS, tmp_path / "one"]
    subprocess.run(call, check=True)
    changed = tmp_path / "notebooks"
    shutil.copytree(paths.NOTEBOOKS, changed, ignore=shutil.ignore_patterns("solutions"))
    for file in changed.glob("*.ipynb"):
        file.write_text(file.read_text(encoding="utf-8").replace("prediction", "guess"), encoding="utf-8")
    subprocess.run([sys.executable, SCRIPTS / "lesson_lines.py", changed, tmp_path / "two"], check=True)
    for file in sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        one, two = tmp_path / "one" / file.name, tmp_path / "two" / file.name
        assert one.read_bytes() == two.read_bytes() and one.stat().st_mtime == two.stat().st_mtime == 0
        assert recipe.dep_lines(json.loads(one.read_text())) == recipe.dep_lines(json.loads(file.read_text("utf-8")))


def test_the_image_leaves_out_what_git_does() -> None:
    lines = (paths.ROOT / ".dockerignore").read_text().splitlines()
    ignored = [line for line in (paths.ROOT / ".gitignore").read_text().splitlines() if line and line[0] != "#"]
    # `a/` of .gitignore is meant at any depth; Docker wants that said.
    wanted = {line if "/" in line.rstrip("/") else f"**/{line}" for line in ignored}
    assert wanted <= set(lines) and ".git" in lines


def test_each_seat_of_the_classroom_has_its_own_port_token_and_files() -> None:
    compose = yaml.safe_load((paths.ROOT / "compose.yaml").read_text(encoding="utf-8"))
    seats = compose["services"]
    assert len(seats) > 1
    for number, (name, seat) in enumerate(seats.items(), 1):
        port = seat["environment"]["PORT"]
        assert seat["ports"] == [f"{port}:{port}"] and seat["volumes"] == [f"{name}:/workspace"]
        assert seat["environment"]["GPULAB_TOKEN"] == f"${{SEAT_{number}_TOKEN:-}}"
        assert seat["image"] == "gpulab" and (paths.ROOT / seat["build"]["dockerfile"]).is_file()
        assert seat["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert len({seat["environment"]["PORT"] for seat in seats.values()}) == len(seats)
    assert set(compose["volumes"]) == set(seats)


def entry(work: Path, *command: str) -> subprocess.CompletedProcess[str]:
    """The container's entry on a folder of this machine, as whoever runs the tests."""
    course = work.parent / "home" / "course"
    for name in ("env/lab.py", "support-crate/Cargo.toml"):
        (course / name).parent.mkdir(parents=True, exist_ok=True)
        (course / name).write_text("")
    own = {"GPULAB_WORKSPACE": str(work), "GPULAB_HOME": str(course.parent), "GPULAB_AS_ROOT": "1"}
    call = [SCRIPTS / "entry.sh", *command]
    return subprocess.run(call, env={**os.environ, **own}, capture_output=True, text=True, check=False)


def test_the_entry_fills_an_empty_folder_and_no_other(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    first = entry(work, "echo", "in its place")
    assert first.returncode == 0 and "in its place" in first.stdout and (work / "env/lab.py").is_file(), first.stderr
    assert "what you make is gone" in first.stdout, "nothing was mounted there"
    (work / "env/lab.py").write_text("a learner's own")
    assert entry(work, "true").returncode == 0 and (work / "env/lab.py").read_text() == "a learner's own"
    shutil.rmtree(work / "env")
    other = entry(work, "true")
    assert other.returncode == 1 and "neither empty nor this course" in other.stderr and "next: mount" in other.stderr


def test_what_is_mounted_below_a_folder_is_found(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("proc /proc proc rw 0 0\nb /a/root ext4 rw 0 0\nc /a/root/dev x rw 0 0\nd /a/rooted x rw 0 0\n")
    assert builder.mounted(Path("/a"), mounts) == ["/a/rooted", "/a/root/dev", "/a/root"]
    assert builder.mounted(Path("/a/root"), mounts) == ["/a/root/dev"]


def test_a_token_that_can_be_guessed_is_refused() -> None:
    assert lab.choose_token("0123456789abcdef") == "0123456789abcdef"
    assert len(lab.choose_token("")) == 32 and lab.choose_token("") != lab.choose_token("")
    for wish in ("short", "with spaces in its text", "ends-with-a-line\n0123"):
        with pytest.raises(ToolError, match="16 or more"):
            lab.choose_token(wish)


def test_what_the_image_copies_before_the_course_is_enough_for_the_set_up(tmp_path: Path) -> None:
    text = DOCKERFILE.read_text(encoding="utf-8").partition("RUN python3 -m env.setup")[0]
    for line in text.splitlines():
        *files, to = line.split()[1:] if line.startswith("COPY --chown=gpulab env/") else [""]
        target = tmp_path / to.removeprefix("/workspace/")
        for file in (paths.ROOT / name for name in files if name.startswith("env/")):
            if file.is_dir():
                shutil.copytree(file, target)
            else:
                target.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target)
    code = "import env.setup.__main__, env.kernel_cache.first_cells as cells; print(cells.__file__)"
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout.startswith(str(tmp_path)), done.stderr


def test_in_a_container_jupyterlab_is_reached_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not any("ServerApp.ip" in option for option in lab.command(8888))
    monkeypatch.setattr(lab, "IN_CONTAINER", True)
    assert "--ServerApp.ip=0.0.0.0" in lab.command(8888)
    monkeypatch.setattr(lab, "is_free", lambda port: False)
    with pytest.raises(ToolError) as problem:
        lab.choose_port("8888")
    assert "-e PORT=8889 -p 8889:8889" in problem.value.next_step


def test_an_image_is_built_for_a_driver_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPULAB_DRIVER", "13.0")
    assert nvrtc.driver_cuda() == (13, 0)


def test_what_set_up_makes_can_lie_elsewhere(tmp_path: Path) -> None:
    code = "from env import paths; print(paths.VENV, paths.GENERATED, paths.PROGRAMS, paths.LAYERED)"
    where = {**os.environ, "GPULAB_HOME": str(tmp_path)}
    call = [sys.executable, "-c", code]
    done = subprocess.run(call, cwd=paths.ROOT, env=where, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"{tmp_path}/.venv", f"{tmp_path}/.gpulab", f"{tmp_path}/target/release", "True"]


def test_without_a_driver_the_toolkits_stand_in_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stub = tmp_path / "cuda/lib64/stubs/libcuda.so"
    stub.parent.mkdir(parents=True)
    stub.write_text("")
    monkeypatch.setattr(paths, "GENERATED", tmp_path / "made")
    monkeypatch.setattr(candle, "_has_driver", lambda: False)
    for _ in range(2):
        (folder,) = candle._stand_in(tmp_path / "cuda")
        assert (folder / "libcuda.so.1").resolve() == stub
    monkeypatch.setattr(candle, "_has_driver", lambda: True)
    assert candle._stand_in(tmp_path / "cuda") == []


@pytest.mark.skipif(shutil.which("cargo") is None, reason="needs cargo")
def test_a_build_is_good_for_a_fresh_clone_of_the_same_sources(tmp_path: Path) -> None:
    """With cargo itself: what it compares is its own affair, and may change."""
    crate, folder = tmp_path / "crate", tmp_path / "warm"
    (crate / "src").mkdir(parents=True)
    (crate / "Cargo.toml").write_text('[package]\nname = "gpulab"\nedition = "2021"\n[workspace]\n')
    (crate / "src/lib.rs").write_text("pub fn answer() -> u32 { 1 }")

    def build() -> bool:
        command = ["cargo", "build", "--offline", "--manifest-path", str(crate / "Cargo.toml")]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(folder / "target"), "CARGO_TERM_COLOR": "never"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return "Compiling" in done.stderr

    def clone() -> float:
        """Built 100 s ago, cloned 50 s ago; gives that time."""
        now = time.time()
        for file, age in [*((file, 100) for file in folder.rglob("*")), *((file, 50) for file in crate.rglob("*.*"))]:
            os.utime(file, (now - age, now - age), follow_symlinks=False)
        return now - 50

    assert build() and not build()
    cloned = clone()
    stamp = {"built": cloned, "since": cloned}
    assert not renew.renew(folder, stamp) and stamp["built"] == cloned
    assert build(), "what was built before these sources is taken for theirs"
    cloned = clone()
    stamp = {"built": cloned - 50, "since": cloned - 60}
    assert renew.renew(folder, stamp)
    assert not build() and stamp["built"] > cloned and paths.read_json(folder / recipe.STAMP) == stamp
    os.utime(crate / "src/lib.rs")
    assert build()
    # A layout in which the notes lie elsewhere: nothing is renewed, so nothing is called good.
    (folder / "target/debug/.fingerprint").rename(folder / "target/debug/notes")
    written, stamp = (folder / recipe.STAMP).read_bytes(), {"built": cloned - 50, "since": cloned - 60}
    assert not renew.renew(folder, stamp) and stamp["built"] == cloned - 50
    assert (folder / recipe.STAMP).read_bytes() == written


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root, and namespaces")
def test_a_container_ends_with_all_that_it_started() -> None:
    # Another run of these tests may be beside this one.
    sleep = f"sleep 77.{os.getpid()}"
    call = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "sh",
        "-c",
        f'setpriv --reuid 4321 sh -c "{sleep}; true"',
    ]
    process = subprocess.Popen(call, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def asleep() -> bool:
        for process in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):  # ended meanwhile
                if process.read_bytes().startswith(sleep.replace(" ", "\0").encode()):
                    return True
        return False

    deadline = time.monotonic() + 5
    while not asleep() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    if process.poll() is not None:
        pytest.skip("this system makes no namespaces")
    assert asleep()
    engine.end(process)
    # Those of a namespace end a moment after its first process.
    deadline = time.monotonic() + 5
    while asleep() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not asleep()
