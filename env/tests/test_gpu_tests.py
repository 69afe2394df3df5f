"""`make test-gpu` knows which ignored tests need a GPU, and is an error where there is none."""

from __future__ import annotations

from env.ci import gpu


def test_ignored_tests_say_why():
    why = gpu.ignored()
    assert sum(reason == gpu.NEEDED for reason in why.values()) > 10
    assert all(reason == gpu.NEEDED or reason.startswith(gpu.HELPER) for reason in why.values()), why


def test_without_a_gpu_it_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(gpu, "has_gpu", lambda: False)
    assert gpu.main() == 1
    assert "next: " in capsys.readouterr().err
