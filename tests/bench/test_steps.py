"""The benches of a step: memory of logits; every arm really steps."""

import json
import os
import signal
import time

import pytest
import torch
from program import Program

from r3l.bench.products import ProductCounter
from r3l.bench.step import ratio_of
from r3l.bench.stopwatch import Stopwatch
from r3l.cli import app


def test_a_step_of_every_arm(tmp_path, capsys):
    out = tmp_path / "bench.json"
    options = ["--tasks", "1", "--group", "2", "--length", "4", "--repeats", "1", "--out", str(out)]
    app(["bench", "train", *options], standalone_mode=False)
    report = json.loads(out.read_text())
    assert json.loads(capsys.readouterr().out) == report  # and nothing else on stdout
    assert report["responses"] == 2 and report["response_tokens"] == 8
    for arm in ("ours", "plain", "trl"):
        if isinstance(report[arm], str):
            assert report[arm] == "not installed: pip install '.[bench]'"
        else:
            assert report[arm]["seconds/step"] > 0 and report[arm]["peak_gib"] > 0.1
            assert (
                report[arm]["seconds_ratio"] == report[arm]["seconds/step"] / report["ours"]["seconds/step"]
            )
    assert report["ours"]["tokens_per_s/sample"] == pytest.approx(8 / report["ours"]["seconds/sample"])
    assert report["ours"]["share/sample"] + report["ours"]["share/train"] == pytest.approx(1)


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130)])
def test_a_stopped_bench_reports_the_arms_that_have_ended(tmp_path, sent, code):
    options = ("--tasks", 1, "--group", 2, "--length", 16, "--repeats", 40, "--out", "bench.json")
    program = Program("r3l.cli", "bench", "train", *options, folder=tmp_path)
    while "ours: " not in program.written("stderr") and program.process.is_alive():
        time.sleep(0.02)
    os.killpg(program.process.pid, sent)
    ended, stdout, stderr = program.wait()
    report = json.loads(stdout)
    assert ended == code and json.loads((tmp_path / "bench.json").read_text()) == report
    assert report["missing"] == ["plain", "trl"] and report["ours"]["seconds_ratio"] == 1
    assert stderr.splitlines()[-2] == "not measured: plain, trl"


def test_a_ratio_is_of_the_same_steps():
    """Ratios 2, 4 and 1.5, so 2; the medians, 6 and 4, are of two steps."""
    slow, fast = ([{"seconds/step": seconds} for seconds in of_arm] for of_arm in ((4, 40, 6), (2, 10, 4)))
    assert ratio_of(slow, fast) == 2 and ratio_of(fast, slow) == 0.5


def test_a_step_by_phase_and_beside_transformers(tmp_path, capsys):
    """Both ways play the same tokens; phases are parts of collecting and of training."""
    options = ["--env", "math", "--repeats", "1", "--set", "train.tasks_per_step=2", "--json"]
    app(["bench", "step", *options], standalone_mode=False)
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    told = [line.rsplit(":", 1)[0] for line in printed.err.splitlines() if line.endswith(" s")]
    assert told == ["warm-up, packed", "warm-up, transformers", "step 1, packed", "step 1, transformers"]
    packed, transformers = report["arms"]["packed"], report["arms"]["transformers"]
    assert packed["tokens/generated"] == transformers["tokens/generated"] and packed["rollouts"] == 16
    assert report["seconds_ratio"] == pytest.approx(transformers["seconds/step"] / packed["seconds/step"])
    for phase in (
        "collect/layers",
        "collect/attention",
        "collect/sampling",
        "train/backward",
        "train/optimiser",
    ):
        assert report["phases"][phase] > 0

    # Each part's seconds, products and share of the rates that the same run measured.
    times = {part: packed[f"seconds/{part}"] for part in ("rollout", "feedback", "retry", "score", "update")}
    assert times["feedback"] == times["retry"] == 0 and times["rollout"] < packed["seconds/collect"]
    assert times["score"] + times["update"] == pytest.approx(packed["seconds/train"])
    assert set(report["limits"]) == {"rollout", "update"}  # of GRPO
    for part, found in report["limits"].items():
        assert found["seconds"] == times[part]  # medians of one step
        assert found["share_of_matrix_rate"] * found["seconds"] * report["flop_per_s"] == pytest.approx(
            found["flop"]
        )
        assert found["share_of_bandwidth"] * found["seconds"] * report["bytes_per_s"] == pytest.approx(
            found["bytes"]
        )
    # No fewer than 2 a weight for each sampled token.
    assert report["limits"]["rollout"]["flop"] > 2 * 1_000_000 * packed["tokens/generated"]


@pytest.mark.parametrize("grad", [torch.inference_mode, torch.enable_grad])
def test_products_are_counted_by_hand(grad):
    """(3, 4) by (4, 5): 2 x 60 operations; 12 + 20 + 5 (bias) + 15 numbers of 4 bytes."""
    layer = torch.nn.Linear(4, 5)
    counter = ProductCounter()
    with counter, grad():
        out = layer(torch.ones(3, 4)).relu()
    assert counter.flop == 120 and counter.bytes == 4 * 52
    if out.requires_grad:  # the weight's gradient is a product too: (5, 3) by (3, 4)
        with counter:
            out.sum().backward()
        assert counter.flop == 240 and counter.bytes == 4 * (52 + 15 + 12 + 20)


def test_seconds_are_charged_to_the_innermost_phase(monkeypatch):
    """Begun at 0; "a" from 1 to 10, in it "b" from 3 to 7: rest 1, a 2 + 3, b 4."""
    times = iter([0.0, 1.0, 3.0, 7.0, 10.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    watch = Stopwatch()
    with watch.phase("a"), watch.phase("b"):
        pass
    assert watch.seconds == {"rest": 1.0, "a": 5.0, "b": 4.0}
