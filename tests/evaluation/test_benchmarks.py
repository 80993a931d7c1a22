"""Question sets: scores by hand, one line an item, resuming, threads and batches, refusals."""

import json

import pytest

from r3l.core.benchmark import BenchmarkItem, Grade, Grading
from r3l.core.errors import ConfigError, EngineError, RunDirectoryError
from r3l.core.policy import Completion, FinishReason, Sampling
from r3l.core.text import Message
from r3l.evaluation.benchmarks import evaluate_sets, scores
from r3l.evaluation.models import Model
from r3l.report.question_sets import scores_table


class Sums:
    """Is the reply the sum? ``retries`` more attempts."""

    def __init__(self, retries=0):
        self.retries = retries
        self.settings = {"retries": retries}

    def items(self, name):
        return [BenchmarkItem(f"{name}/{k}", name, f"{k}+1", str(k + 1), f"hash{k}", overlaps=k == 2) for k in range(5)]

    def opening(self, item):
        return [Message("user", item.text)]

    def grade(self, item, replies):
        grade = Grade(replies[-1].text == item.gold, "graded" if replies[-1].text else "none", replies[-1].text)
        again = not grade.correct and len(replies) <= self.retries
        return Grading({"exact": grade}, Message("user", "Wrong.") if again else None)


class Adder:
    """Adds right from its second thought on, and even numbers at once; ``dies_at`` that many replies."""

    def __init__(self, dies_at=None):
        self.dies_at, self.asked = dies_at, []

    def open(self):
        return AdderDialog(self)


class AdderDialog:
    def __init__(self, adder):
        self.adder, self.messages = adder, []

    def add(self, message):
        self.messages.append(message)

    async def respond(self, sampling, address):
        if self.adder.dies_at is not None and len(self.adder.asked) >= self.adder.dies_at:
            raise EngineError("gone")
        self.adder.asked.append((self.messages[0].content, address))
        number = int(self.messages[0].content.split("+")[0])
        if len(self.messages) > 1 or number % 2 == 0:
            return Completion(str(number + 1), (), (1,) * 3, (0.0,) * 3, FinishReason.END)
        return Completion("", (), (1,) * 5, (0.0,) * 5, FinishReason.LENGTH)

    def close(self):
        pass


def model_of(adder, batch=1, at_once=1):
    return Model("adder", {"temperature": 0.0}, adder, Sampling(), batch=batch, batches_at_once=at_once)


def lines(out):
    return [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(("batch", "at_once"), [(1, 1), (2, 1), (1, 3), (2, 2)])
def test_scores_by_hand(tmp_path, batch, at_once):
    result = evaluate_sets(Sums(), model_of(Adder(), batch, at_once), ["a", "b"], tmp_path, seed=7)
    for name in ("a", "b"):
        score = result["sets"][name]
        assert (score["items"], score["attempts"], score["truncated"]) == (5, 1, 0.4)
        assert score["tokens"] == pytest.approx((3 * 3 + 2 * 5) / 5)
        assert score["constant_answer_baseline"] == {
            "answer": "1",
            "accuracy": 0.2,
        }  # each of the five golds is there once
        rule = score["rules"]["exact"]
        assert (rule["accuracy"], rule["parse_failures"], rule["grader_timeouts"]) == (0.6, 0.4, 0)
        # Wilson by hand, z2 = 3.8415, n = 5, p = 0.6: (0.6 + 0.38415 -+ 1.96 * sqrt(0.048 + 0.038415)) / 1.7683
        assert rule["low"] == pytest.approx(0.2307, abs=1e-4) and rule["high"] == pytest.approx(0.8824, abs=1e-4)
        rest = score["without_overlap"]
        assert (rest["dropped"], rest["items"]) == ([f"{name}/2"], 4) and rest["rules"]["exact"]["accuracy"] == 0.5
    rows = lines(tmp_path)
    assert sorted(row["id"] for row in rows) == sorted(f"{name}/{k}" for name in "ab" for k in range(5))
    assert json.loads((tmp_path / "evaluation.json").read_text()) == result
    assert next(scores_table(result).cells())[3].text == "0.600"


def test_feedback_goes_on_with_the_same_dialog(tmp_path):
    model = Adder()
    result = evaluate_sets(Sums(retries=1), model_of(model, batch=5), ["a"], tmp_path, seed=7)
    assert result["sets"]["a"]["rules"]["exact"]["accuracy"] == 1.0
    assert result["sets"]["a"]["attempts"] == 7 / 5
    assert sorted((text, address[3]) for text, address in model.asked) == [
        ("0+1", 0),
        *(("1+1", attempt) for attempt in range(2)),
        ("2+1", 0),
        *(("3+1", attempt) for attempt in range(2)),
        ("4+1", 0),
    ]
    assert len({address for _, address in model.asked}) == 7  # every reply has a seed of its own


def test_a_stopped_evaluation_goes_on(tmp_path):
    whole = evaluate_sets(Sums(), model_of(Adder()), ["a"], tmp_path / "whole", seed=7)
    out = tmp_path / "stopped"
    with pytest.raises(EngineError, match="gone"):
        evaluate_sets(Sums(), model_of(Adder(dies_at=2)), ["a"], out, seed=7)
    assert len(lines(out)) == 2 and not (out / "evaluation.json").exists()
    with (out / "items.jsonl").open("a") as file:
        file.write('{"id": "a/2", "se')  # killed while writing
    rest = Adder()
    assert evaluate_sets(Sums(), model_of(rest), ["a"], out, seed=7) == whole
    assert [text for text, _ in rest.asked] == ["2+1", "3+1", "4+1"]
    assert lines(out) == lines(tmp_path / "whole")


def test_more_items_and_sets_join_what_is_there(tmp_path):
    evaluate_sets(Sums(), model_of(Adder()), ["a"], tmp_path, seed=7, limit=2)
    model = Adder()
    result = evaluate_sets(Sums(), model_of(model), ["a", "b"], tmp_path, seed=7, limit=3)
    assert [text for text, _ in model.asked] == ["2+1", "0+1", "1+1", "2+1"]
    assert [result["sets"][name]["items"] for name in "ab"] == [3, 3]


def test_a_folder_is_of_one_model_under_one_set_of_settings(tmp_path):
    evaluate_sets(Sums(), model_of(Adder()), ["a"], tmp_path, seed=7)
    with pytest.raises(RunDirectoryError, match="evaluation with seed 7, now 8; choose another folder with --out"):
        evaluate_sets(Sums(), model_of(Adder()), ["a"], tmp_path, seed=8)
    with pytest.raises(RunDirectoryError, match="retries 0, now 1"):
        evaluate_sets(Sums(retries=1), model_of(Adder()), ["a"], tmp_path, seed=7)


def test_an_item_that_changed_is_asked_again(tmp_path):
    evaluate_sets(Sums(), model_of(Adder()), ["a"], tmp_path, seed=7)
    text = (tmp_path / "items.jsonl").read_text().replace("hash3", "another")
    (tmp_path / "items.jsonl").write_text(text)
    model = Adder()
    assert evaluate_sets(Sums(), model_of(model), ["a"], tmp_path, seed=7)["sets"]["a"]["items"] == 5
    assert [text for text, _ in model.asked] == ["3+1"]


def test_no_items_no_score():
    with pytest.raises(ConfigError, match="no question"):
        scores([], [])
