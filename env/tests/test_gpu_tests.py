"""`make test-gpu` knows which ignored tests need a GPU, and is an error where there is none."""

from __future__ import annotations

import test_gpu


def test_ignored_tests_say_why():
    why = test_gpu.ignored()
    assert sum(reason == test_gpu.NEEDED for reason in why.values()) > 10
    assert all(reason == test_gpu.NEEDED or reason.startswith("the other process of") for reason in why.values()), why


def test_without_a_gpu_it_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(test_gpu, "has_gpu", lambda: False)
    assert test_gpu.main() == 1
    assert "next: " in capsys.readouterr().err
