"""``r3l evaluate FILE.yaml``: several evaluations, one table, and what is refused before the first of
them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from chat_server import completion, serving
from docs.pages import blocks
from program import run

from r3l.cli.evaluations import EvaluationRequest, plan_evaluation, read_file
from r3l.files.paths import ROOT

pytestmark = pytest.mark.usefixtures("no_workers")
PAGE = ROOT / "docs/endpoints.md"


def test_each_is_played_as_its_line_says_and_stands_in_one_table(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    (shown,) = (block for block in blocks(PAGE) if block.startswith("evaluations:"))
    Path("several.yaml").write_text(shown.replace("gsm8k", "math"))  # problems that need no download
    with serving(lambda request, before: completion("look")) as (url, seen):
        words = ("evaluate", "several.yaml", "--server", url)
        code, out, err = run(monkeypatch, capsys, *words)
        assert code == 0, err
        asked = len(seen)
        _, text, _ = run(monkeypatch, capsys, *words, "--json")
        assert len(seen) == asked  # all there
    lines = [line for line in err.splitlines() if "episodes: " in line]
    assert len(lines) == 10 and all(line.startswith("2 evaluations, episodes: ") for line in lines), err
    assert "math zero_shot@" in lines[0] and "react" in lines[-1] and " left" in lines[0]
    assert "react" in out and "tier smol" in out and out.count("/tiny@") == 2
    first, second = json.loads(text)["evaluations"]
    assert (first["env"], first["episodes"], second["protocol"]["name"]) == ("math", 15, "react")


@pytest.mark.parametrize("protocol", ["r3l", "all"])
def test_what_has_ended_is_not_played_again(monkeypatch, capsys, caplog, tmp_path, protocol):
    monkeypatch.chdir(tmp_path)
    with serving(lambda request, before: completion("2")) as (url, seen):
        words = (
            "evaluate",
            "gsm8k",
            "--protocol",
            protocol,
            "--server",
            url,
            "-n",
            "2",
            "--out",
            "out",
            "--json",
        )
        _, first, _ = run(monkeypatch, capsys, *words)
        asked = len(seen)
        _, again, _ = run(monkeypatch, capsys, *words)
        assert len(seen) == asked >= 2 and "was played before; delete it" in caplog.text
        file = next(tmp_path.rglob("episodes.jsonl"))
        file.write_text(file.read_text() + "\n")
        code, _, error = run(monkeypatch, capsys, *words)
    assert code == 2 and "episodes.jsonl changed after" in error
    one, other = (json.loads(text).get("protocols", {protocol: json.loads(text)}) for text in (first, again))
    assert [content["groups"] for content in one.values()] == [
        content["groups"] for content in other.values()
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs: []", "its only key must be 'evaluations', a list"),
        ("evaluations: []", "its only key must be 'evaluations', a list"),
        ("evaluations: [math]", "evaluations.0 has value 'math'; write options, such as"),
        ("evaluations: [{env: math}, {env: math, m: 3}]", "evaluations.1: unknown key 'm'"),
        (
            "evaluations: [{env: math, n: 0}]",
            "evaluations.0: key 'n' has value 0: input should be greater than",
        ),
        ("evaluations: [{env: math}, {env: maths}]", "evaluations.1: there is no env 'maths'"),
        (
            "evaluations: [{env: math, n: 1}, {env: math, n: 100000}]",
            "evaluations.1: evaluation.tasks (-n) is 100000, but the task set has 200 tasks",
        ),
        ("evaluations: [{env: math, task_set: none}]", "evaluations.0: math task set 'none' must"),
        (
            "evaluations: [{env: math, deadline: 9}]",
            "evaluations.0: --deadline cannot be combined with a local model",
        ),
    ],
)
def test_what_is_wrong_with_any_line_is_said_before_the_first_is_played(
    monkeypatch, capsys, tmp_path, text, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "several.yaml").write_text(text)
    code, _, err = run(monkeypatch, capsys, "evaluate", "several.yaml", "--model", "math-1.5m")
    assert code == 2 and "several.yaml" in err and message in " ".join(err.split()), err
    assert [path.name for path in tmp_path.iterdir()] == ["several.yaml"]


def test_a_folder_of_another_run_or_with_other_requests_is_found_before_the_first_line_is_played(
    monkeypatch, capsys, tmp_path
):
    monkeypatch.chdir(tmp_path)
    lines = "{env: math, tier: nano, n: 1}, {env: math, tier: nano, n: 2%s}"
    with serving(lambda request, before: completion("2")) as (url, seen):
        words = ("evaluate", "two.yaml", "--server", url)
        Path("two.yaml").write_text(
            f"evaluations: [{lines % ''}, {{env: math, tier: nano, n: 2, request: [a=1]}}]"
        )
        code, _, err = run(monkeypatch, capsys, *words)
        assert code == 2 and "evaluations.2 would be written into the folder of evaluations.1" in err

        Path("two.yaml").write_text("evaluations: [{env: math, tier: nano, n: 2}]")
        assert run(monkeypatch, capsys, *words)[0] == 0
        played = len(seen)
        Path("two.yaml").write_text(f"evaluations: [{lines % ', request: [a=1]'}]")
        code, _, err = run(monkeypatch, capsys, *words)
        assert code == 2 and "evaluations.1: " in err and "holds an evaluation with request '{}', now" in err
    assert [request for request in seen[played:] if "messages" in str(request)] == []


def test_a_model_that_a_later_line_is_too_long_for_plays_none(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    line = "{env: math, tier: nano, n: 1, set: [sampling.max_context=%s]}"
    Path("two.yaml").write_text(f"evaluations: [{line % 1024}, {line % 4096}]")
    code, _, err = run(monkeypatch, capsys, "evaluate", "two.yaml", "--model", "math-1.5m")
    assert (
        code == 2
        and "has positions for 2048" in err
        and [path.name for path in tmp_path.iterdir()] == ["two.yaml"]
    )


def test_settings_of_the_command_line_are_added_to_those_of_a_line(monkeypatch, tmp_path):
    """A line's ``set`` dropped all of them; now it wins where both set one key."""
    monkeypatch.chdir(tmp_path)
    Path("two.yaml").write_text(
        "evaluations: [{env: math, n: 1}, {env: math, n: 2, set: [evaluation.temperature=0.5, workers=1]}]"
    )
    options = {"model": "math-1.5m", "set": ["evaluation.temperature=0.25", "threads=2"], "request": []}
    first, second = (plan.run for plan in read_file(Path("two.yaml"), options))
    assert (first.evaluation.temperature, first.threads) == (0.25, 2)
    assert (second.evaluation.temperature, second.threads, second.workers) == (0.5, 2, 1)


def test_requests_of_the_command_line_are_added_to_those_of_a_line(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("one.yaml").write_text("evaluations: [{env: math, n: 1, request: [top_p=0.5]}]")
    with serving(lambda request, before: completion("2")) as (url, seen):
        words = ("evaluate", "one.yaml", "--server", url, "--request", "top_p=0.9", "--request", "top_k=3")
        code, _, err = run(monkeypatch, capsys, *words)
    assert code == 0, err
    sent = [request for request in seen if "messages" in request]
    assert sent and all((request["top_p"], request["top_k"]) == (0.5, 3) for request in sent)


def test_how_a_machine_computes_is_set_but_stands_in_no_name():
    settings = ["threads=2", "workers=0", "evaluation.temperature=0"]
    asked = EvaluationRequest(env="math", model="math-1.5m", n=4, set=settings)
    run = plan_evaluation(asked).run
    assert (run.threads, run.workers) == (2, 0)
    assert run.method == "zero_shot@evaluation.tasks=4,evaluation.temperature=0"
