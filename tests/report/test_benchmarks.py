"""The table of question sets: evaluations as `r3l evaluate --set` leaves them, beside published numbers."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from r3l.core.benchmark import BenchmarkItem, Grade, Grading
from r3l.core.errors import DataError
from r3l.core.policy import Completion, FinishReason, Sampling
from r3l.core.text import Message
from r3l.evaluation.benchmarks import evaluate_sets
from r3l.evaluation.models import Model
from r3l.report import question_sets, tables
from r3l.runs.places import find_benchmark_runs
from r3l.workflow import plan

TABLE = plan.tables()["zero_shot"]


class Forty:
    """40 questions a set, as AMC23 has; replies to the first ``right`` are right, the last one is cut off."""

    def __init__(self, prompt, right):
        self.settings = {"protocol": "standard", "prompt": prompt}
        self.right = right

    def items(self, name):
        return [BenchmarkItem(f"{name}/{k}", name, str(k), "1", f"hash{k}") for k in range(40)]

    def opening(self, item):
        return [Message("user", item.text)]

    def grade(self, item, replies):
        return Grading({"strict": Grade(replies[-1].text == "1", "graded" if replies[-1].text else "none")})

    def open(self):
        return FortyDialog(self.right)


class FortyDialog:
    """The model side of the same."""

    def __init__(self, right):
        self.right = right

    def add(self, message):
        self.number = int(message.content)

    async def respond(self, sampling, address):
        if self.number == 39:
            return Completion("", (), (1,), (0.0,), FinishReason.LENGTH)
        return Completion("1" if self.number < self.right else "0", (), (1,), (0.0,), FinishReason.END)

    def close(self):
        pass


def evaluate(root, prompt, right, model="Qwen/Qwen2.5-1.5B-Instruct", seed=0, limit=None, sets=("amc23",)):
    benchmark = Forty(prompt, right)
    folder = root / "evaluations" / "math" / model.replace("/", "--") / f"standard-{prompt}" / f"seed{seed}"
    evaluate_sets(
        benchmark, Model(model, {"temperature": 0.0}, benchmark, Sampling(), batch=40), list(sets), folder, seed, limit
    )


def amc23(root):
    built = replace(tables.build(TABLE, [], [], 3, "nano", find_benchmark_runs(root)), empty=True)
    rows = {(row["model"], row["label"]): row for row in built.flat() if row["env"] == "AMC23"}
    return rows, built.printed


def test_a_whole_set_is_held_against_the_paper(tmp_path):
    evaluate(tmp_path, "boxed", 12)  # the paper: 0.300 of 40
    evaluate(tmp_path, "tags", 20)  # the paper: 0.150
    rows, printed = amc23(tmp_path)
    boxed = rows["Qwen2.5-1.5B-Instruct", "zero-shot (boxed)"]
    assert (boxed["mean"], boxed["low"], boxed["high"]) == (0.3, 0.1807, 0.4543)  # Wilson's, 12 of 40
    assert (boxed["verdict"], boxed["paper_difference"], boxed["interval"]) == (
        "within interval",
        0.0,
        "Wilson, 40 questions",
    )
    assert (boxed["episodes"], boxed["parse_failure_rate"], boxed["truncation_rate"]) == (40, 0.025, 0.025)
    tags = rows["Qwen2.5-1.5B-Instruct", "zero-shot (<answer>)"]
    assert (tags["mean"], tags["verdict"]) == (0.5, "outside")
    cells = printed.section("Qwen2.5-1.5B-Instruct, ours")["zero-shot (boxed)"]
    assert cells["AMC23"].text == "0.300 [0.181, 0.454]" and cells["GSM8K"].text == "0/1 seeds"
    assert any("Wilson" in note for note in printed.notes)


def test_part_of_a_set_gets_no_verdict_and_other_models_a_block_of_their_own(tmp_path):
    evaluate(tmp_path, "boxed", 5, limit=10)
    evaluate(tmp_path, "boxed", 2, model="SmolLM2-135M-Instruct", sets=("amc23", "aime24"))  # aime24: not in the table
    rows, printed = amc23(tmp_path)
    part = rows["Qwen2.5-1.5B-Instruct", "zero-shot (boxed)"]
    assert (part["mean"], part["verdict"], part["verdict_reason"]) == (0.5, "not comparable", "10 of 40 questions")
    other = rows["SmolLM2-135M-Instruct", "zero-shot (boxed)"]
    assert (other["mean"], other["verdict_reason"]) == (0.05, "the paper has no such number")
    assert list(printed.section("SmolLM2-135M-Instruct, ours")) == ["zero-shot (boxed)"]
    assert "AIME24" not in printed.names


def test_several_seeds_are_the_unit(tmp_path):
    evaluate(tmp_path, "boxed", 12, seed=0)
    evaluate(tmp_path, "boxed", 16, seed=1)
    row = amc23(tmp_path)[0]["Qwen2.5-1.5B-Instruct", "zero-shot (boxed)"]
    assert (row["mean"], row["seeds_done"], row["interval"]) == (0.35, 2, "t, 2 seeds")
    assert row["high"] == pytest.approx(0.35 + 12.7062 * 0.05, abs=1e-3)


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "evaluation.json").write_text(json.dumps({"groups": {}}))
    with pytest.raises(DataError, match=r"evaluation\.json is no evaluation of question sets"):
        question_sets.load([tmp_path / "evaluation.json"])
