"""Which notebooks a name or a number stands for."""

from __future__ import annotations

import pytest
from env import notebooks
from env.console import ToolError


def test_a_number_names_its_lesson_and_those_with_a_letter(tmp_path):
    for name in ("02_async_timing", "12a_matmul_tiles", "12b_matmul_pipelines", "20_train_cnn"):
        (tmp_path / f"{name}.ipynb").touch()

    def found(names: str) -> list[str]:
        return [path.stem for path in notebooks.find(names, tmp_path)]

    assert found("12") == ["12a_matmul_tiles", "12b_matmul_pipelines"]
    assert found("12b,02") == ["12b_matmul_pipelines", "02_async_timing"]
    assert found("12a_matmul_tiles.ipynb,12") == ["12a_matmul_tiles", "12b_matmul_pipelines"]
    for none in ("1", "12c", "2"):
        with pytest.raises(ToolError, match="no notebook is called"):
            found(none)
