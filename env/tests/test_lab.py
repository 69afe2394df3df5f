"""`make lab`: JupyterLab opens beside the set-up, and both end together."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from env import lab, paths
from env.setup import python


def set_up_that(does: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout whose set-up is this script."""
    monkeypatch.setattr(paths, "ROOT", folder)
    for name, text in (("__init__", ""), ("setup/__init__", ""), ("setup/__main__", does)):
        paths.write_text(folder / "env" / f"{name}.py", text)


def test_the_set_up_ends_with_jupyterlab_and_so_does_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    does = "import subprocess, pathlib, os; child = subprocess.Popen(['sleep', '100'])\n"
    does += "pathlib.Path('part').write_text(f'{os.getpid()} {child.pid}'); os.rename('part', 'pids'); child.wait()"
    set_up_that(does, tmp_path, monkeypatch)
    with pytest.raises(SystemExit), lab.set_up() as process:
        while not (tmp_path / "pids").exists():
            assert process.poll() is None
            time.sleep(0.05)
        mine, child = map(int, (tmp_path / "pids").read_text().split())
        assert mine == process.pid
        # As Ctrl-C does.
        lab.sys.exit(0)
    assert process.returncode is not None
    ended = time.monotonic() + 5
    while Path(f"/proc/{child}").exists() and time.monotonic() < ended:
        # Nobody waits for it here but the system's first process.
        if ") Z " in Path(f"/proc/{child}/stat").read_text():
            break
        time.sleep(0.05)
    else:
        assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize(("answers", "status", "opens"), [([False, False, True], 0, True), ([False] * 99, 1, False)])
def test_jupyterlab_opens_once_its_packages_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: list[bool], status: int, opens: bool
) -> None:
    set_up_that(f"import time; time.sleep(1); raise SystemExit({status})", tmp_path, monkeypatch)
    said = iter(answers)
    monkeypatch.setattr(python, "ready", lambda: next(said))
    with lab.set_up() as process:
        assert lab.wait_for_packages(process) == opens
        # The packages alone are waited for, not the rest.
        assert (process.poll() is None) == opens


def test_the_token_is_in_jupyters_own_file_and_in_no_argument(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.delenv("NO_BROWSER", raising=False)
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(paths, "VENV_PYTHON", Path(sys.executable))
    monkeypatch.setattr(lab.webbrowser, "open", lambda url: opened.append(url) or True)
    lab.show(8888, "0123456789abcdef", 77)
    assert opened == [(tmp_path / "jpserver-77-open.html").as_uri()]
    assert any(word.endswith("/lab/tree/notebooks/00_welcome.ipynb") for word in lab.command(8888))


def test_another_jupyter_finds_the_kernel(tmp_path: Path) -> None:
    """By its own search; the kernel is then started in any folder."""
    # Of this environment's own entry a Jupyter elsewhere knows nothing.
    environment = {**os.environ, "JUPYTER_DATA_DIR": str(tmp_path / "data"), "JUPYTER_PREFER_ENV_PATH": "0"}
    command = [sys.executable, "-m", "env.setup.user_kernel"]

    def call(*more: str) -> str:
        done = subprocess.run(
            [*command, *more], cwd=paths.ROOT, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    assert str(tmp_path / "data/kernels/gpulab-rust") in call()
    code = "import json; from jupyter_client.kernelspec import KernelSpecManager as M\n"
    code += "spec = M(ensure_native_kernel=False).get_kernel_spec('gpulab-rust'); print(json.dumps([spec.resource_dir, *spec.argv]))"
    found = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert str(tmp_path / "data") in found.stdout and str(paths.VENV_PYTHON) in found.stdout
    call("--remove")
    assert not (tmp_path / "data/kernels/gpulab-rust").exists()
    call("--remove")


def test_the_kernel_that_builds_the_crates_ends_with_the_set_up(tmp_path: Path) -> None:
    """The signal comes twice: to the whole group, and from the set-up to what it started."""
    kernel = tmp_path / "bin/evcxr_jupyter"
    paths.write_text(
        kernel, f"#!/bin/sh\necho $$ > {tmp_path}/part; mv {tmp_path}/part {tmp_path}/pid; exec sleep 100\n"
    )
    kernel.chmod(0o755)
    (tmp_path / "build").mkdir()
    words = [tmp_path / "build", tmp_path / "toolchain", kernel, ":dep gpulab"]
    command = [sys.executable, "-m", "env.kernel_cache.first_cells", *map(str, words)]
    with subprocess.Popen(command, cwd=paths.ROOT, stderr=subprocess.PIPE) as process:
        while not (tmp_path / "pid").exists():
            assert process.poll() is None
            time.sleep(0.05)
        try:
            for _ in range(300):
                process.terminate()
                time.sleep(0.0005)
            assert process.wait(30) != 0
        finally:
            process.kill()
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()
