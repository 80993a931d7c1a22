"""examples/gpu_check.py, with the nano model on a CPU."""

import runpy
import sys
from types import SimpleNamespace

import pytest

from r3l.files.paths import ROOT


def load():
    return SimpleNamespace(**runpy.run_path(str(ROOT / "examples" / "gpu_check.py")))


@pytest.mark.slow
def test_the_check_of_a_gpu_runs_on_a_cpu(tmp_path, monkeypatch, capsys):
    gpu_check = load()
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--nano", "--out", str(tmp_path / "out")])
    assert gpu_check.main() == 0
    shown = capsys.readouterr().out
    assert "nats in the mean" in shown and "byte for byte (stopped with exit code 75)" in shown


def test_a_failed_command_fails_its_check_alone(tmp_path, monkeypatch, capsys):
    gpu_check = load()
    broken = ("r3l", lambda: gpu_check.Check(None, tmp_path).report("bad", "train", "--tier", "huge"))
    monkeypatch.setattr(gpu_check.Check, "all", lambda self: [broken, ("fine", lambda: "seen")])
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--nano", "--out", str(tmp_path)])
    assert gpu_check.main() == 1
    shown = capsys.readouterr().out
    assert "exit code 2" in shown and "no tier 'huge'" in shown and "seen" in shown
