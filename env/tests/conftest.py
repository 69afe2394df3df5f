"""Shared by the tests: notebooks made from a few cells."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

KERNELSPEC = {"name": "gpulab-rust", "display_name": "Rust (gpulab)", "language": "rust"}


@pytest.fixture(scope="session")
def make() -> Callable[..., Path]:
    """Writes a notebook of code cells: each is its source, or (source, tags, further metadata)."""
    import nbformat

    def make(folder: Path, name: str, *cells: object, solutions: str = "") -> Path:
        notebook = nbformat.v4.new_notebook(metadata={"kernelspec": KERNELSPEC, "language_info": {"name": "rust"}})
        for number, cell in enumerate(cells, 1):
            source, tags, more = cell if isinstance(cell, tuple) else (cell, [], {})
            metadata = {"tags": tags, **more} if tags else {}
            notebook.cells.append(nbformat.v4.new_code_cell(source, metadata=metadata, id=f"cell-{number}"))
        path = folder / f"{name}.ipynb"
        path.write_text(nbformat.writes(notebook), encoding="utf-8")
        if solutions:
            (folder / "solutions").mkdir(exist_ok=True)
            (folder / "solutions" / f"{name}.rs").write_text(solutions, encoding="utf-8")
        return path

    return make


@pytest.fixture(autouse=True)
def _no_real_rustup(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that looks like a machine without Rust must not install it on the one that it runs on."""
    from env.setup import rustup

    monkeypatch.setattr(rustup.install_rustup, "__defaults__", ("http://127.0.0.1:9",))
