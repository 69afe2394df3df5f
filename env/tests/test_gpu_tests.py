"""`make test-gpu` knows which ignored tests need a GPU, and is an error where there is none."""

from __future__ import annotations

import pytest
from env.ci import gpu
from env.console import ToolError


def test_ignored_tests_say_why():
    why = gpu.ignored()
    assert sum(reason == gpu.NEEDED for reason in why.values()) > 10
    assert all(reason == gpu.NEEDED or reason.startswith(gpu.HELPER) for reason in why.values()), why


def test_without_a_gpu_it_is_an_error(monkeypatch):
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    with pytest.raises(ToolError, match="no NVIDIA GPU"):
        gpu.main()
