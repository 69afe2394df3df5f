"""The offline bundle: packed, cut, carried, damaged, unpacked; with small files in place of a toolchain."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ENV = Path(__file__).resolve().parent.parent
from env.console import ToolError
from env.offline import __main__ as bundle
from env.offline import crates, pack, wheels
from env.offline.unpack import target
from env.setup import headers

PART = 700
HERE = ".".join(map(str, sys.version_info[:2]))


def component(folder: Path, name: str, files: dict[str, bytes]) -> pack.Component:
    """Files on disk, as a component."""
    made = {}
    for number, (inside, content) in enumerate(files.items()):
        made[inside] = folder / f"{name}{number}"
        made[inside].write_bytes(content)
    return pack.Component(name, "0123456789ab", made)


def small_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch, **changes: object) -> Path:
    """A whole bundle in several parts, with its script."""
    dist = folder / "dist"
    dist.mkdir()
    noise = b"".join(hashlib.sha256(bytes([n])).digest() for n in range(100))
    base = component(folder, "rust", {"rust/bin/rustc": noise, "crates/a/Cargo.toml": b"[package]\n"})
    course = component(folder, "course", {"README.md": b"# course\n", "env/setup/__main__.py": b"print('set up')\n"})
    about = {"machine": platform.machine(), "python": HERE, "glibc": "2.2", "requirements": ["a==1"], "size": 4000}
    base_info = {**about, "kind": "base", "key": "b1", **changes}
    course_info = {"kind": "course", "key": "c0ffee1", "commit": "c0ffee1", "size": 100}
    monkeypatch.setattr(bundle, "DIST", dist)
    sums = {}
    for half, info in ((base, base_info), (course, course_info)):
        archive = pack.compress(half, folder / "kept")[0]
        sums |= pack.write_parts(dist, f"gpulab-offline-{info['kind']}-{info['key']}-x", PART, info, [archive])
    bundle.write_script(sums)
    return dist


def unpack(dist: Path, to: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Runs the script as a reader does."""
    command = ["sh", str(dist / "unpack.sh"), "--to", str(to), "--only-unpack", *more]
    environment = {**os.environ, "GPULAB_PYTHON": sys.executable}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_bundle_comes_through_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist = small_bundle(tmp_path, monkeypatch)
    parts = sorted(dist.glob("*-base-*.part*"))
    assert len(parts) > 3 and all(part.stat().st_size == PART for part in parts[:-1])
    to = tmp_path / "there"
    done = unpack(dist, to, "--", "sh", "-c", "echo commit=$GPULAB_COMMIT; echo $CARGO_HOME; pwd")
    assert done.returncode == 0, done.stderr
    assert f"commit=c0ffee1\n{to}/tools/cargo\n{to}/gpulab" in done.stdout
    assert (to / "tools/rust/bin/rustc").read_bytes() == (tmp_path / "rust0").read_bytes()
    assert 'directory = "tools/crates"' in (to / ".cargo/config.toml").read_text()
    assert (to / "tools/requirements.txt").read_text() == "a==1\n"


def test_make_reads_the_settings_of_an_unpacked_course(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = tmp_path / "there"
    assert unpack(small_bundle(tmp_path, monkeypatch), to).returncode == 0
    shutil.copy(ENV.parent / "Makefile", to / "gpulab")
    shutil.copy(ENV / "paths.py", to / "gpulab/env")
    extra = """\nshow:\n\t@echo $(PYTHON); python3 -c 'import os; from env import paths; """
    extra += """print(os.environ["PIP_NO_INDEX"], paths.cargo_bin(), os.environ["GPULAB_REQUIREMENTS"], os.environ["PATH"])'\n"""
    with (to / "gpulab/Makefile").open("a") as file:
        file.write(extra)
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    said = subprocess.run(
        ["make", "-s", "show"], cwd=to / "gpulab", capture_output=True, text=True, env=clean, check=True
    )
    python, settings = said.stdout.splitlines()
    assert Path(python).is_absolute()
    expected = f"1 {to}/tools/cargo/bin {to}/tools/requirements.txt {to}/tools/rust/bin:{to}/tools/cargo/bin:"
    assert settings.startswith(expected)


def test_any_command_of_an_unpacked_course_stays_off_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not by make: as `python3 -m env.…`, which asks the set-up first, and as a kernel that another Jupyter starts."""
    to = tmp_path / "there"
    assert unpack(small_bundle(tmp_path, monkeypatch), to).returncode == 0
    course = to / "gpulab"
    for name in ("paths.py", "in_venv.py", "__init__.py"):
        shutil.copy(ENV / name, course / "env")
    show = "import os; from env import paths\nprint(*(os.environ[n] for n in ('PIP_NO_INDEX', 'CARGO_NET_OFFLINE', 'GPULAB_COMMIT')))"
    (course / "env/setup/__main__.py").write_text(show)
    (course / "env/run.py").write_text("from env import in_venv; in_venv.enter()")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GPULAB")}
    command = [sys.executable, "-m", "env.run"]
    said = subprocess.run(command, cwd=course, capture_output=True, text=True, env=clean, check=False)
    assert said.stdout == "1 true c0ffee1\n"
    # The whole environment is handed on: a second start adds nothing to it.
    code = "import os; from env import paths; before = os.environ['PATH']; paths.apply_offline(); print(before == os.environ['PATH'])"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=course, capture_output=True, text=True, env=clean, check=True
    )
    assert said.stdout == "True\n"
    # Another Python than the one that its packages are for becomes that one.
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\necho chosen $GPULAB_PYTHON $*\n")
    other.chmod(0o755)
    record = course / "offline.json"
    about = json.loads(record.read_text())
    about["settings"]["GPULAB_PYTHON"] = str(other)
    record.write_text(json.dumps(about))
    code = "from env import in_venv; in_venv.chosen_python()"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=course, capture_output=True, text=True, env=clean, check=True
    )
    assert said.stdout.startswith(f"chosen {other} -c from env")


def test_make_bundle_takes_a_version_for_python() -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-n", "bundle", "PYTHON=3.12", "NVRTC=none"]
    said = subprocess.run(command, cwd=ENV.parent, capture_output=True, text=True, env=clean, check=True).stdout
    assert "python3 -m env.setup" in said and "python3 -m env.offline --check" in said and "3.12 -m" not in said


def test_missing_and_damaged_parts_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist = small_bundle(tmp_path, monkeypatch)
    one, other = sorted(dist.glob("*-base-*.part*"))[1:3]
    content = bytearray(one.read_bytes())
    content[100] ^= 1
    one.write_bytes(content)
    done = unpack(dist, tmp_path / "there")
    assert done.returncode == 1 and f"damaged: {one.name} " in done.stderr and "\nnext: copy it" in done.stderr
    other.unlink()
    done = unpack(dist, tmp_path / "there")
    assert done.returncode == 1 and f"missing: {other.name} " in done.stderr and "\nnext: copy it" in done.stderr
    (dist / "unpack.pyz").write_bytes(b"cut off")
    done = unpack(dist, tmp_path / "there")
    assert done.returncode == 1 and "unpack.pyz is missing or damaged\nnext: " in done.stderr
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"machine": "vax"}, "the bundle is for vax"),
        ({"glibc": "2.999"}, "need glibc 2.999"),
        ({"python": "3.1"}, "packages are for Python 3.1"),
        ({"size": 1 << 60}, "are needed"),
    ],
)
def test_a_machine_that_does_not_fit_is_told_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict, text: str
) -> None:
    done = unpack(small_bundle(tmp_path, monkeypatch, **change), tmp_path / "there")
    assert done.returncode == 1 and text in done.stderr and "\nnext: " in done.stderr


def test_no_compiler_and_an_awkward_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target.shutil, "which", lambda name: None)
    with pytest.raises(ToolError, match="no C compiler"):
        target.check_machine({"machine": platform.machine(), "glibc": "2.2"})
    done = unpack(small_bundle(tmp_path, monkeypatch), tmp_path / "with space")
    assert done.returncode == 1 and "choose another" in done.stderr


def test_unpacking_again_loses_no_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dist, to = small_bundle(tmp_path, monkeypatch), tmp_path / "there"
    assert unpack(dist, to).returncode == 0
    (to / "gpulab/README.md").write_text("my notes")
    assert unpack(dist, to).returncode == 0
    assert (to / "gpulab/README.md").read_text() == "my notes"
    record = to / "gpulab/offline.json"
    record.write_text(json.dumps({**json.loads(record.read_text()), "key": "older"}))
    assert unpack(dist, to).returncode == 0
    assert (to / "gpulab/README.md").read_text() == "# course\n"
    [aside] = to.glob("gpulab-older-*")
    assert (aside / "README.md").read_text() == "my notes"


def test_an_archive_is_kept_until_its_key_changes(tmp_path: Path) -> None:
    one = component(tmp_path, "rust", {"a": b"1"})
    first = pack.compress(one, tmp_path / "kept")[0]
    made = first.stat().st_mtime_ns
    assert pack.compress(one, tmp_path / "kept")[0].stat().st_mtime_ns == made
    one.key = "ba9876543210"
    second = pack.compress(one, tmp_path / "kept")[0]
    assert second != first and not first.exists() and pack.digest("a", "b") != pack.digest("ab", "")


@pytest.mark.parametrize("wrong", ["", "60", "M", "-1M", "0M", "60MB", "1K"])
def test_sizes(wrong: str) -> None:
    assert pack.parse_size("58m") == 58 << 20 and pack.parse_size("1G") == 1 << 30
    with pytest.raises(ToolError, match="\nnext: make bundle PART=60M"):
        pack.parse_size(wrong)


def test_unknown_python_and_nvrtc() -> None:
    for call, wrong in ((wheels.check_version, "3.9"), (wheels.check_version, "py"), (bundle.nvrtc_package, "11")):
        with pytest.raises(ToolError, match="\nnext: make bundle "):
            call(wrong)
    assert bundle.nvrtc_package("none") is None
    assert str(bundle.nvrtc_package("13")).startswith("nvidia-cuda-nvrtc==13.")
    assert str(bundle.nvrtc_package("12.4")).startswith("nvidia-cuda-nvrtc-cu12==12.4.")


def test_packages_are_those_of_the_other_python() -> None:
    old, new = wheels.requirements("3.10"), wheels.requirements("3.12")
    assert "exceptiongroup" in " ".join(old) and "exceptiongroup" not in " ".join(new)
    for chosen in (old, new):
        names = [one.split("==")[0] for one in chosen]
        assert len(set(names)) == len(names) and {"jupyterlab", "onnx"} <= set(names) and "pytest" not in names
        assert all(";" not in one and "==" in one for one in chosen)


def test_a_loosened_wheel_is_whole(tmp_path: Path) -> None:
    wheel = tmp_path / "n-1-py3-none-any.whl"
    files = {
        "n/lib.so.13": b"x" * 999,
        "n/lib.alt.so.13": b"y",
        "n-1.dist-info/RECORD": b"n/lib.so.13,,\nn/lib.alt.so.13,,\n",
    }
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    wheels.loosen(wheel)
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None and archive.namelist() == ["n/lib.so.13", "n-1.dist-info/RECORD"]
        assert archive.read("n-1.dist-info/RECORD") == b"n/lib.so.13,,\n" and archive.read("n/lib.so.13") == b"x" * 999
        assert all(entry.compress_type == zipfile.ZIP_STORED for entry in archive.infolist())


def test_cargo_takes_an_emptied_crate(tmp_path: Path) -> None:
    crate, user = tmp_path / "crates/gone-1.0.0", tmp_path / "user"
    files = {
        "Cargo.toml": '[package]\nname = "gone"\nversion = "1.0.0"\nedition = "2021"\nbuild = "build.rs"\n'
        '[lib]\nname = "gone"\npath = "src/all.rs"\n',
        "src/all.rs": "compile_error!();",
        "build.rs": "compile_error!();",
        "lib/big.a": "big",
        "LICENSE-MIT": "words",
    }
    for name, text in files.items():
        (crate / name).parent.mkdir(parents=True, exist_ok=True)
        (crate / name).write_text(text)
    sums = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    record = crate / ".cargo-checksum.json"
    record.write_text(json.dumps({"files": sums, "package": "0" * 64}))
    (user / "src").mkdir(parents=True)
    (user / "src/lib.rs").write_text("pub use gone as it;")
    (user / "Cargo.toml").write_text(
        '[package]\nname = "user"\nedition = "2021"\n[dependencies]\ngone = "1"\n[workspace]\n'
    )
    config = '[source.crates-io]\nreplace-with = "here"\n[source.here]\ndirectory = "crates"\n[net]\noffline = true\n'
    (tmp_path / ".cargo").mkdir()
    (tmp_path / ".cargo/config.toml").write_text(config)

    def check() -> subprocess.CompletedProcess[str]:
        return subprocess.run(["cargo", "check", "-q"], cwd=user, capture_output=True, text=True, check=False)

    crates.empty(crate)
    assert not (crate / "lib/big.a").exists() and (crate / "LICENSE-MIT").read_text() == "words"
    assert check().returncode == 0, check().stderr
    # And cargo does compare: a file with a wrong sum is refused.
    shutil.rmtree(user / "target")
    (crate / "src/all.rs").write_text("// changed")
    assert "the listed checksum of" in check().stderr


@pytest.mark.parametrize(
    ("wish", "names"), [("13", ["headers", "nvrtc"]), ("12.4", ["headers", "nvrtc"]), ("none", [])]
)
def test_the_compiler_brings_its_headers(monkeypatch: pytest.MonkeyPatch, wish: str, names: list[str]) -> None:
    asked: dict[str, list[str]] = {}

    def component(name: str, wanted: list[str], *rest: object) -> pack.Component:
        asked[name] = wanted
        return pack.Component(name, "0123456789ab", {})

    class Toolchain:
        version, sysroot = "rustc 1", Path("/rust")

        def components(self) -> list[pack.Component]:
            return []

    nothing = pack.Component("kernel", "0123456789ab", {})
    monkeypatch.setattr(bundle, "Toolchain", Toolchain)
    monkeypatch.setattr(bundle, "kernel", lambda: nothing)
    monkeypatch.setattr(bundle.crates, "component", lambda *rest: nothing)
    monkeypatch.setattr(bundle.wheels, "component", component)
    monkeypatch.setattr(bundle, "needed_glibc", lambda programs: "2.2")
    bundle.components("3.12", wish, "x86_64")
    assert sorted(set(asked) - {"wheels-3.12"}) == names
    for name in names:
        minor = "13.0." if wish == "13" else "12.4."
        own = [one for one in asked[name] if one != headers.CRT]
        assert own and all(one.split("==")[1].startswith(minor) for one in own)
