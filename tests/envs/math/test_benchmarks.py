"""The two protocols on replies written by hand, graded by the real graders; ``r3l evaluate`` on a real HTTP server."""

import json

import pytest
from chat_server import completion, serving
from program import run
from r3l.envs.math.benchmarks import MathBenchmark
from r3l.envs.math.datasets import load

from r3l.core.benchmark import BenchmarkItem, Reply
from r3l.core.errors import ConfigError

QUESTION = BenchmarkItem("gsm8k/x", "gsm8k", "How many?", "34", "0")
IN_TAGS = "<think>17 * 2</think><answer>{}</answer>"


def reply(text, stop="end"):
    return Reply(text, stop, 1)


@pytest.fixture(scope="module")
def standard():
    with MathBenchmark() as benchmark:
        yield benchmark


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("So it is \\boxed{34}.", True, True),
        (IN_TAGS.format("34"), True, True),
        (IN_TAGS.format("\\boxed{34}"), True, True),
        ("The answer is 34.", False, True),
        ("35, no: 34", False, True),
        ("\\boxed{35}, or 34", False, False),
        ("I do not know.", False, False),
    ],
)
def test_standard_is_one_attempt_with_both_extractions(standard, text, strict, flexible):
    grading = standard.grade(QUESTION, [reply(text)])
    assert grading.feedback is None
    assert {rule: grade.correct for rule, grade in grading.grades.items()} == {"strict": strict, "flexible": flexible}


def test_prompts_ask_for_what_strict_reads(standard):
    (message,) = standard.opening(QUESTION)
    assert message.role == "user" and message.content.startswith("How many?") and "\\boxed{}" in message.content
    with MathBenchmark(prompt="tags") as benchmark:
        system, user = benchmark.opening(QUESTION)
    assert "<answer>" in system.content and user.content == "How many?"
    assert benchmark.settings == {"protocol": "standard", "prompt": "tags"}


def sitting(benchmark, *texts, stop="end"):
    """Judge replies one after the other; the grading of each."""
    replies = [reply(text, stop) for text in texts]
    return [benchmark.grade(QUESTION, replies[: k + 1]) for k in range(len(replies))]


def test_three_attempts_with_an_oracle():
    with MathBenchmark("r3l_released") as benchmark:
        wrong, unreadable, right = sitting(
            benchmark, IN_TAGS.format("35"), "<answer>34</answer>", IN_TAGS.format("\\boxed{34}")
        )
        assert "Your answer 35 is not correct" in wrong.feedback.content
        assert "no readable answer" in unreadable.feedback.content and unreadable.grades["oracle"].status == "none"
        assert right.feedback is None
        correct = {rule: grade.correct for rule, grade in right.grades.items()}
        assert correct == {"oracle": True, "strict": True, "flexible": True, "first_attempt": False}
        assert sitting(benchmark, *[IN_TAGS.format(k) for k in "123"])[2].feedback is None  # three, not more
        assert sitting(benchmark, "", stop="context")[0].feedback is None


def test_the_released_oracle_rejects_its_own_prompts_example():
    with MathBenchmark("r3l_released", oracle="released") as benchmark:
        assert "<answer>\\boxed{" in benchmark.opening(QUESTION)[0].content
        boxed, bare = sitting(benchmark, IN_TAGS.format("\\boxed{34}"), IN_TAGS.format("34"))
        assert not boxed.grades["oracle"].correct and boxed.grades["strict"].correct
        assert bare.grades["oracle"].correct and bare.feedback is None
        assert benchmark.settings == {"protocol": "r3l_released", "oracle": "released"}


@pytest.mark.parametrize("option", ["protocol", "prompt", "oracle"])
def test_unknown_values_are_named(option):
    with pytest.raises(ConfigError, match=f"--{option} is 'nonesuch'; known: "):
        MathBenchmark(**{option: "nonesuch"})


@pytest.fixture(scope="module")
def golds():
    return {p.problem: p.gold for p in load("gsm8k")[:6]}


def answering(golds):
    """Right on every second of the first six problems; unboxed on one of the others."""

    def answer(request, before):
        text = "".join(message["content"] for message in request["messages"])
        number, gold = next((k, g) for k, (p, g) in enumerate(golds.items()) if p in text)
        if number % 2 == 0:
            return completion(f"\\boxed{{{gold}}}")
        return completion(f"It is {gold}" if number == 1 else "I go on and", "stop" if number == 1 else "length")

    return answer


def test_evaluate_on_a_server_end_to_end(monkeypatch, capsys, tmp_path, golds):
    monkeypatch.chdir(tmp_path)
    arguments = ["evaluate", "gsm8k", "--limit", 6, "--model", "tiny/model", "--batch", 3, "--json"]
    with serving(answering(golds)) as (url, seen):
        code, text, _ = run(monkeypatch, capsys, *arguments, "--server", url)
        assert code == 0 and len(seen) == 6 and all(request["temperature"] == 0 for request in seen)
        again, _, _ = run(monkeypatch, capsys, *arguments, "--server", url)
        assert again == 0 and len(seen) == 6  # nothing is asked twice
    result = json.loads(text)
    score = result["sets"]["gsm8k"]
    assert score["rules"]["strict"]["accuracy"] == 3 / 6 and score["rules"]["flexible"]["accuracy"] == 4 / 6
    assert score["rules"]["strict"]["parse_failures"] == 3 / 6 and score["truncated"] == 2 / 6
    assert result["settings"] == {
        "model": "tiny/model",
        "protocol": "standard",
        "prompt": "boxed",
        "seed": 0,
        "temperature": 0.0,
        "max_tokens": 4096,
    }
    out = tmp_path / "results" / "evaluations" / "math" / "tiny--model" / "standard-boxed" / "seed0"
    assert json.loads((out / "evaluation.json").read_text()) == result
    assert len((out / "items.jsonl").read_text().splitlines()) == 6


def test_evaluate_prints_a_table(monkeypatch, capsys, tmp_path, golds):
    with serving(answering(golds)) as (url, _):
        arguments = [
            "gsm8k",
            "--limit",
            2,
            "--server",
            url,
            "--protocol",
            "r3l_released",
            "--out",
            tmp_path / "x",
        ]
        code, text, _ = run(monkeypatch, capsys, "evaluate", *arguments)
    assert code == 0 and "oracle" in text and "first_attempt" in text and "temperature 0.4" in text
    assert str(tmp_path / "x" / "items.jsonl") in text.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gsm8k"], "say what answers gsm8k"),
        (["gsm8k,gsm9k", "--model", "math-1.5m"], "gsm9k"),
        (["gsm8k", "--model", "math-1.5m", "--protocol", "twice"], "--protocol is 'twice'; known: standard"),
        (["gsm8k", "--model", "math-1.5m", "--set", "prompt=loud"], "prompt is 'loud'; known: boxed"),
        (["gsm8k", "--model", "math-1.5m", "--set", "train.lr=1"], "train.lr"),
        (["gsm8k", "--server", "nonsense", "--model", "m"], "must be an address"),
    ],
)
def test_bad_input_is_one_paragraph_and_exit_code_2(monkeypatch, capsys, tmp_path, arguments, message):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(monkeypatch, capsys, "evaluate", *arguments)
    assert code == 2 and out == ""
    assert err.startswith("error: ") and message in err and len(err.strip().splitlines()) == 1
