"""The set-up's decisions: what is pinned, which NVRTC, what is out of date, what is said."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from env import console, lab, paths
from env.baselines import bench_cells
from env.kernel_cache import build, recipe, set_up_progress
from env.setup import __main__ as setup
from env.setup import nvrtc, python, rust


def locked(group: str) -> dict[str, str]:
    """The packages of a group's list, each with its sums; and nothing else stands there."""
    text = (paths.ENV / "requirements" / f"{group}.txt").read_text().replace("\\\n", "")
    found = [
        re.fullmatch(
            r"([a-z0-9-]+(?:\[[a-z-]+\])?==[\w.]+)( ; [^#]+?)?((?: +--hash=sha256:[0-9a-f]{64})+)", line.strip()
        )
        for line in text.splitlines()
    ]
    assert all(found), "a package without a version or a sum, or the name of an index"
    return {one[1] + (one[2] or ""): one[3] for one in found if one}


def test_every_package_is_pinned_with_its_sums_and_what_two_groups_share_is_the_same() -> None:
    groups = {group: locked(group) for group in python.GROUPS}
    pins = {group: {one.split(" ;")[0] for one in packages} for group, packages in groups.items()}
    names = {group: {re.split(r"==|\[", one)[0] for one in found} for group, found in pins.items()}
    assert len(names["learner"]) > 80
    for group in python.GROUPS:
        asked = (paths.ENV / "requirements" / f"{group}.in").read_text().splitlines()
        for line in (line.split(" ;")[0] for line in asked if not line.startswith("#")):
            known = pins[group] if "==" in line else names[group]
            assert (line if "==" in line else re.split(r"[\[<]", line)[0]) in known, f"{line}: make requirements"
        shared = {one for one in pins[group] if re.split(r"==|\[", one)[0] in names["learner"]}
        assert shared <= pins["learner"]
    # What only tests and lesson 42 need is no learner's.
    assert not names["learner"] & {"pytest", "ruff", "playwright", "onnx", "onnxruntime", "numpy"}


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An empty virtual environment, and the commands that would fill it."""
    calls: list[list[str]] = []
    for name, place in (("ENV", "env"), ("VENV", "venv"), ("VENV_PYTHON", "venv/bin/python")):
        monkeypatch.setattr(paths, name, tmp_path / place)
    for group in python.GROUPS:
        paths.write_text(tmp_path / "env/requirements" / f"{group}.txt", f"{group}==1\nother==2\n")
    shutil.copytree(python.SETTINGS, tmp_path / "env/jupyter")

    def run(command: list, *_: str, on_line: object = None, **__: object) -> None:
        calls.append([str(word) for word in command])
        if on_line:
            for line in ("Collecting learner==1 (from -r x)", "Ignoring other: markers", "Collecting learner>=1"):
                on_line(line)

    def make(folder: Path) -> None:
        calls.append(["make"])
        paths.write_text(folder / "bin/python", "")

    monkeypatch.delenv("GPULAB_REQUIREMENTS", raising=False)
    monkeypatch.setattr(python, "run", run)
    monkeypatch.setattr(python, "make", make)
    monkeypatch.setattr(python, "output", lambda _: f"{python.VERSION} {paths.VENV}" if len(calls) else None)
    return calls


def lists(command: list[str]) -> list[str]:
    return [Path(word).stem for before, word in itertools.pairwise(command) if before == "-r"]


def test_a_group_of_packages_comes_when_it_is_asked_for_and_stays(venv: list[list[str]]) -> None:
    assert not python.ready()
    python.environment()
    assert venv[0] == ["make"] and lists(venv[1]) == ["learner"] and "--require-hashes" in venv[1]
    assert not python.ready(), "the kernel's entry is missing"
    python.jupyter()
    assert python.ready()
    python.environment()
    assert len(venv) == 2
    python.environment(["tests"])
    assert lists(venv[2]) == ["tests"] and python.ready()
    # A new version of the lists, of all groups that are there.
    for group in python.GROUPS:
        paths.write_text(paths.ENV / "requirements" / f"{group}.txt", f"{group}==2\n")
    assert not python.ready()
    python.environment()
    assert lists(venv[3]) == ["learner", "tests"] and python.ready()


def test_an_environment_that_was_moved_is_made_anew_and_a_link_is_refused(venv: list[list[str]]) -> None:
    python.environment()
    stamp = paths.VENV / "gpulab.json"
    paths.write_json(stamp, {**paths.read_json(stamp), "folder": "/where/it/was"})
    python.environment()
    assert venv[2] == ["make"] and lists(venv[3]) == ["learner"] and paths.read_json(stamp)["folder"] == str(paths.VENV)
    shared = paths.VENV.rename(paths.VENV.with_name("of another course"))
    paths.VENV.symlink_to(shared)
    paths.write_json(stamp, {})
    with pytest.raises(console.ToolError, match="is a link to") as error:
        python.environment()
    assert "next: remove the link" in str(error.value) and len(venv) == 4


def test_a_bundles_list_has_no_sums(venv: list[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths.write_text(tmp_path / "bundle.txt", "a==1\n")
    monkeypatch.setenv("GPULAB_REQUIREMENTS", str(tmp_path / "bundle.txt"))
    python.environment(["tests"])
    assert lists(venv[1]) == ["bundle"] and "--require-hashes" not in venv[1]


def test_no_index_beside_another_and_no_token_among_arguments() -> None:
    for file in [paths.ROOT / "Makefile", *paths.ENV.rglob("*.py"), *paths.ENV.rglob("*.sh")]:
        if "tests" not in file.parts:
            text = file.read_text(encoding="utf-8")
            assert "--extra-index-url" not in text, file
    token = "0123456789abcdef"
    assert token not in " ".join(lab.command(8888))
    assert lab.environment(token)["JUPYTER_TOKEN"] == token


@pytest.mark.parametrize(
    ("wish", "driver", "version"),
    [
        ("", None, "13.0.88"),
        ("", (13, 0), "13.0.88"),
        ("", (14, 1), "13.0.88"),
        ("", (12, 4), "12.4.127"),
        ("", (12, 7), "12.6.85"),
        ("", (12, 9), "12.9.86"),
        ("12", None, "12.9.86"),
        ("12", (13, 0), "12.9.86"),
        ("13", (12, 4), "13.0.88"),
    ],
)
def test_nvrtc_is_never_newer_than_the_driver_unless_asked_for(wish: str, driver: tuple | None, version: str) -> None:
    name, found = nvrtc.package(wish, driver)
    assert found == version
    assert name.endswith("cu12") == version.startswith("12")


@pytest.mark.parametrize("driver", [(12, 2), (11, 8)])
def test_a_driver_too_old_for_the_course_is_told_so(driver: tuple[int, int]) -> None:
    with pytest.raises(console.ToolError, match=f"CUDA {driver[0]}.{driver[1]} only") as error:
        nvrtc.package("", driver)
    assert "next: update the NVIDIA driver" in str(error.value)
    assert "lessons" in error.value.loses


def test_the_lessons_that_need_nvrtc_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    (tmp_path / "00_cpu.ipynb").write_text("lesson.measure_cpu(1)")
    (tmp_path / "07_gpu.ipynb").write_text('lesson.measure(\\"x\\", …')
    (tmp_path / "09_pool.ipynb").write_text('lesson.measure_memory(\\"x\\", …')
    assert "in lessons 07, 09 the GPU cells" in nvrtc.loses()


def test_an_unknown_nvrtc_stops_the_set_up_at_once() -> None:
    nvrtc.check_wish("12")
    with pytest.raises(console.ToolError, match="NVRTC=11"):
        nvrtc.check_wish("11")


def test_nvrtc_is_linked_under_both_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "LIBRARIES", tmp_path / "lib")
    site = tmp_path / "site"
    for version in ("12", "13"):
        folder = site / "nvidia" / f"cu{version}" / "lib"
        folder.mkdir(parents=True)
        (folder / f"libnvrtc.so.{version}").write_text(version)
    with pytest.raises(console.ToolError, match="no libnvrtc"):
        nvrtc.find_libraries(site)
    (site / "nvidia/cu12/lib/libnvrtc-builtins.so.12.9").write_text("helper")
    nvrtc.link(*nvrtc.find_libraries(site))
    assert (tmp_path / "lib/libnvrtc.so").read_text() == "12"
    (site / "nvidia/cu13/lib/libnvrtc-builtins.so.13.0").write_text("helper")
    nvrtc.link(*nvrtc.find_libraries(site))
    names = sorted(file.name for file in (tmp_path / "lib").iterdir())
    assert names == ["libnvrtc-builtins.so.13.0", "libnvrtc.so", "libnvrtc.so.13"]
    assert (tmp_path / "lib/libnvrtc.so").read_text() == "13"


def test_versions_are_compared_as_numbers() -> None:
    assert rust.numbers("rustc 1.100.0 (abc 2027-01-01)") > rust.numbers("1.89")
    assert rust.numbers("none") == ()


def test_jupyter_gets_the_kernel_and_valid_settings() -> None:
    texts = {path.name: text for path, text in python.jupyter_files().items()}
    # The kernel starts in the notebook's folder, and finds the course's tools from there.
    assert texts.pop("gpulab-tools.pth") == f"{paths.ROOT}\n"
    assert "_JUPYTERLAB.gpulab" in texts.pop("remoteEntry.js")
    files = {name: json.loads(text) for name, text in texts.items()}
    settings = {"overrides.json", "page_config.json", "jupyter_server_config.json"}
    assert set(files) == {"kernel.json", "package.json", *settings}
    assert files["kernel.json"]["argv"][1:] == ["-I", "-m", "env.launcher", "{connection_file}"]
    assert files["kernel.json"]["interrupt_mode"] == "message"
    # JupyterLab would rewrite a file without this entry, and each set-up write it back.
    assert files["page_config.json"]["lockedExtensions"] == files["page_config.json"]["disabledExtensions"]


def test_a_full_or_read_only_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOT", "VENV", "GENERATED"):
        monkeypatch.setattr(paths, name, tmp_path)
    failed = console.ToolError("pip failed", "connect to the internet")
    assert setup.disk_error(failed) is failed
    assert (
        str(setup.disk_error(OSError("odd")))
        == "odd\nnext: make that place writable, with room on its disk; then make setup"
    )
    monkeypatch.setattr(setup, "ROOM_MB", 1 << 40)
    said = str(setup.disk_error(failed))
    assert said.startswith("pip failed\nnext: make room: ") and f"free in {tmp_path}" in said
    monkeypatch.setattr(setup.os, "access", lambda place, mode: False)
    assert f"next: make {tmp_path} writable" in str(setup.disk_error(OSError("Read-only file system")))


def test_cells_are_built_where_the_path_has_no_space(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, spaced = Path("/srv/gpulab/.gpulab"), Path("/srv/my course/gpulab/.gpulab")
    monkeypatch.setenv("XDG_CACHE_HOME", "/users/me/cache")
    assert paths.without_spaces(plain) == plain
    elsewhere, another = paths.without_spaces(spaced), paths.without_spaces(Path("/srv/my other/gpulab/.gpulab"))
    assert elsewhere.parent == another.parent == Path("/users/me/cache/gpulab") and elsewhere != another
    setup.check_place(elsewhere)
    monkeypatch.setenv("XDG_CACHE_HOME", "/users/john smith/cache")
    with pytest.raises(console.ToolError, match="next: set XDG_CACHE_HOME"):
        setup.check_place(paths.without_spaces(spaced))


def test_lessons_are_found_by_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path)
    load, nn = recipe.PLAIN.splitlines()[0], ':dep gpulab-nn = { path = "../crates/nn" }'
    for name, source in (
        ("00_welcome", load),
        ("12a_tiles", load),
        ("12b_pipelines", f"{load}\n{nn}"),
        ("20_train_cnn", f"// data\n  {load}\n{nn}\nuse gpulab::prelude::*;"),
    ):
        cells = [{"cell_type": "markdown", "source": ":dep gpulab = no"}, {"cell_type": "code", "source": [source]}]
        (tmp_path / f"{name}.ipynb").write_text(json.dumps({"cells": cells}))
    assert build.lesson_lines(["20"]) == [f"{load}\n{nn}"]
    assert build.lesson_lines(["12"]) == build.lesson_lines(["12a", "12b_pipelines"]) == [load, f"{load}\n{nn}"]
    assert build.lesson_lines(["00", "20_train_cnn", "20"]) == [load, f"{load}\n{nn}"]
    with pytest.raises(console.ToolError, match="no lesson '7'") as error:
        build.lesson_lines(["7"])
    assert "00_welcome, 12a_tiles, 12b_pipelines, 20_train_cnn" in str(error.value)


def test_lessons_that_fail_together_are_built_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, ...]] = []

    def warm(_rust: object, _evcxr: object, *sets: str) -> None:
        tried.append(sets)
        if any("bad" in one for one in sets):
            raise console.ToolError("no toolkit", "install it")

    monkeypatch.setattr(build, "warm", warm)
    assert not setup._lessons(None, None, [":dep one = 1", ":dep two = 2"])
    (lost,) = setup._lessons(None, None, [":dep one = 1", ":dep bad = 2"])
    assert "no toolkit" in str(lost) and lost.loses.startswith("the lessons that load bad build")
    assert [len(sets) for sets in tried] == [2, 2, 1, 1]


def test_durations_are_for_people() -> None:
    assert [console.seconds(value) for value in (0.04, 9.94, 61.2, 425)] == ["0.0 s", "9.9 s", "61 s", "7 min 5 s"]


def test_an_optional_part_that_fails_does_not_stop_the_set_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lost = console.ToolError("no wheel", "make setup", "lesson 03 shows the recorded run")
    monkeypatch.setattr(setup, "install", lambda lines, groups, part: ([lost], None))
    monkeypatch.setattr(paths, "GENERATED", tmp_path)
    monkeypatch.setattr(sys, "argv", ["setup.py", "--lessons", ""])
    monkeypatch.delenv("NVRTC", raising=False)
    assert setup.main() == 0
    said = capsys.readouterr()
    assert "parts missing" in said.out
    assert "next: make setup" in said.err
    assert "lesson 03" in said.err


def test_a_part_that_is_needed_does_and_a_cell_that_waits_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(lines: list[str], groups: list[str], part: str | None) -> None:
        raise console.ToolError("no Rust", "install it")

    monkeypatch.setattr(paths, "GENERATED", tmp_path)
    monkeypatch.setattr(setup, "install", fail)
    monkeypatch.setattr(sys, "argv", ["setup.py", "--lessons", ""])
    monkeypatch.delenv("NVRTC", raising=False)
    assert setup.main() == 1
    assert capsys.readouterr().err == "error: no Rust\nnext: install it\n"
    found = set_up_progress.read()
    assert found and found.error == "no Rust\nnext: install it"


def test_without_a_c_compiler_nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rust.shutil, "which", lambda name: "/usr/bin/clang" if name == "clang" else None)
    rust.check_linker()
    monkeypatch.setattr(rust.shutil, "which", lambda name: None)
    with pytest.raises(console.ToolError, match="no C compiler") as error:
        rust.check_linker()
    assert "build-essential" in str(error.value)


def test_what_both_rows_lack_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(what: str) -> None:
        raise console.ToolError(what, "fix it")

    monkeypatch.setattr(python, "environment", lambda groups: fail("no packages"))
    monkeypatch.setattr(rust, "check_linker", lambda: fail("no compiler"))
    with pytest.raises(console.ToolError, match="no compiler"):
        setup.install([], [])
    assert capsys.readouterr().err == "error: no packages\nnext: fix it\n"


@pytest.mark.parametrize("target", ["setup", "run", "verify", "test", "bundle"])
@pytest.mark.parametrize("program", ["no-such-python", "false"])
def test_make_says_that_a_python_is_too_old_or_missing(target: str, program: str) -> None:
    said = subprocess.run(
        ["make", "--no-print-directory", target, f"PYTHON={program}"],
        cwd=paths.ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode != 0
    assert f"`{program}` is no Python of version 3.10 or newer\nnext: " in said.stderr
    assert "Traceback" not in said.stderr


def test_ports_that_cannot_be_used_are_told() -> None:
    for wish in ("80", "99999", "lab"):
        with pytest.raises(console.ToolError, match="no port number"):
            lab.choose_port(wish)
    assert lab.choose_port("") >= 8888


def test_a_port_in_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "is_free", lambda port: port != 9000)
    with pytest.raises(console.ToolError, match="something else uses port 9000") as error:
        lab.choose_port("9000")
    assert "next: make lab PORT=9001" in str(error.value)


def test_the_table_tells_limits_and_verdicts() -> None:
    rows = [bench_cells.Row("fast", [0.2, 0.3, 0.9], 0.5), bench_cells.Row("slow", [2.0, 1.0, 3.0], 1.5)]
    text = bench_cells.table("a machine", rows, crates=2, read_mib=[500.0, 612.4, 700.0])
    assert "| fast | 0.30 s | 0.20 s | 0.90 s | 0.5 s | kept |" in text
    assert "| slow | 2.00 s | 1.00 s | 3.00 s | 1.5 s | exceeded |" in text
    assert "| 2 | | | 0 | exceeded |" in text
    assert "| read from disk by such a cold start | 612 MiB | 500 MiB | 700 MiB | | |" in text


@pytest.mark.skipif(not Path("/proc/vmstat").is_file(), reason="needs Linux")
def test_a_cold_start_finds_none_of_its_files_in_memory() -> None:
    runs = paths.ROOT / "results" / "run"
    runs.mkdir(parents=True, exist_ok=True)
    # Not in /tmp, which may lie in memory alone.
    with tempfile.TemporaryDirectory(dir=runs) as name:
        folder = Path(name)
        file = folder / "folder" / "file"
        file.parent.mkdir()
        file.write_bytes(bytes(64 << 20))
        bench_cells.forget([folder, folder / "nowhere"])
        before = bench_cells.read_from_disk()
        file.read_bytes()
        assert bench_cells.read_from_disk() - before >= 64


def test_make_help_names_every_target() -> None:
    makefile = (paths.ROOT / "Makefile").read_text()
    targets = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert targets
    said = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=paths.ROOT, capture_output=True, text=True, check=True
    )
    assert [line.split()[1] for line in said.stdout.splitlines()] == targets[1].split()


@pytest.mark.parametrize(("where", "left"), [("course", 1), ("image", 1), ("container", 2)])
def test_a_build_for_more_lines_takes_the_others_place(tmp_path, monkeypatch, where: str, left: int) -> None:
    """In a container the old one stays: kernels that run there have links into it."""
    monkeypatch.setattr(paths, "WARM", tmp_path / "warm")
    monkeypatch.setattr(build, "WORK", tmp_path / "warm" / "building")
    monkeypatch.setattr(recipe, "SWAP_LOCK", tmp_path / "swap.lock")
    monkeypatch.setattr(paths, "LAYERED", where != "course")
    monkeypatch.setenv("GPULAB_CONTAINER", "1" if where == "container" else "")
    for built, lines in enumerate([["a"], ["a", "b"]], start=1):
        build.WORK.mkdir(parents=True)
        (build.WORK / "target").write_text(str(built))
        build._put_in_place({"dependencies": "0a", "sources": "0b", "built": float(built), "lines": lines})
        folder, stamp = recipe.warmed()
        assert stamp["lines"] == lines and (folder / "target").read_text() == str(built)
    assert len(list(paths.WARM.iterdir())) == left
