"""The lines that are printed with a score."""

import json
import re

import pytest

from r3l.config import resolve
from r3l.core.environment import StopReason
from r3l.evaluation.summary import fixes, summary, warnings
from r3l.files.paths import STORED
from r3l.runs.manifest import run_of


def test_a_stored_score_with_its_circumstances():
    path = STORED / "hint_gap/nano/alfworld/alfworld-1.5m-hints/r3l/seed0/evaluation.json"
    evaluation = json.loads(path.read_text(encoding="utf-8"))
    text = summary(evaluation, run_of(path.parent))
    # 112 of 200, Wilson: (0.56 + 1.9207/200 -+ 1.96 sqrt(0.2464/200 + 0.9604/200^2)) / (1 + 3.8415/200)
    assert "success 0.560 (95 % interval 0.491 to 0.627); easy 0.580, hard 0.540" in text
    assert "200 episodes on task set small/test (200 tasks), at most 16 turns, temperature 0.4" in text
    sha256 = evaluation["checkpoint"]["sha256"][:12]
    assert (
        f"each task once by checkpoint of step 60 (sha256 {sha256}), prompts hold the dialog from its beginning"
        in text
    )
    assert "success 112, turn limit 48, inadmissible action 39, repetition 1" in text
    assert "warning" not in text
    idle = summary(evaluation | {"turns": {"all": 98, "impossible": 50}}, run_of(path.parent))
    assert idle.endswith(
        "warning: 50 of 98 turns had an action that the environment does not know: read them in the transcripts"
    )


SUSPECT = {
    StopReason.CONTEXT: "more room",
    StopReason.TRUNCATED: "more tokens",
    StopReason.FORMAT: "another form",
}


def test_a_zero_that_the_setting_made_is_not_a_score():
    (warning,) = warnings({"context": 200}, 200, {}, SUSPECT)
    assert "200 of 200" in warning and "more room" in warning
    assert (
        warnings({"truncated": 20, "success": 180}, 200, {}, SUSPECT) == []
    )  # a tenth is not more than a tenth
    assert len(warnings({"truncated": 21, "format": 50, "success": 129}, 200, {}, SUSPECT)) == 2


@pytest.mark.parametrize(
    ("env", "prompts", "options", "fix"),
    [
        ("webshop", "compact", [], "a language model needs --set prompts=full"),
        ("webshop", "full", [], "--set env_settings.options.response_format=flexible"),
        ("webshop", "full", ["env_settings.options.response_format=flexible"], ""),
        (
            "webshop",
            "full",
            ["env_settings.options.response_format=released"],
            "--set env_settings.options.response_format=flexible",
        ),
        ("math", "full", [], "--set env_settings.options.extraction=flexible"),
    ],
)
def test_what_to_change_is_what_is_not_so_already_and_can_be_typed(env, prompts, options, fix):
    settings = [f"prompts={prompts}", "sampling.max_tokens=30", *options]
    found = fixes(resolve("nano", env, "zero_shot", 0, overrides=settings))
    assert (
        found[StopReason.FORMAT]
        .partition("asks for")[2]
        .removeprefix("; ")
        .removesuffix(" reads more of them")
        == fix
    )
    for change in re.findall(r"--set (\S+=\w+)", " ".join(found.values())):
        resolve("nano", env, "zero_shot", 0, overrides=[*settings[2:], change])
    assert "--set sampling.max_tokens=512" in found[StopReason.TRUNCATED]


def test_a_warning_shows_what_the_model_wrote():
    (short,) = warnings({"format": 1}, 1, {"format": ["t1", "I look\n\x1b[31maround."]}, SUSPECT)
    assert short.endswith('For example, task t1: "I look\\n\\u001b[31maround."')
    (long,) = warnings({"truncated": 1}, 1, {"truncated": ["t1", "a" * 999 + "b" * 150]}, SUSPECT)
    assert long.endswith(f't1: "{"a" * 150} ... {"b" * 150}"')


@pytest.mark.parametrize(
    ("requests", "at_the_limit", "by_the_server"),
    [
        ({}, True, False),
        ({"cut_short": 30}, False, True),
        ({"cut_short": 10}, True, True),
        ({"uncounted": 50}, True, True),
    ],
)
def test_max_tokens_is_blamed_for_what_it_cut_alone(requests, at_the_limit, by_the_server):
    """Of 30 episodes that a cut-off response ended the server cut none, all, ten, or nobody knows how many."""
    path = STORED / "hint_gap/nano/alfworld/alfworld-1.5m-hints/r3l/seed0/evaluation.json"
    evaluation = json.loads(path.read_text(encoding="utf-8"))
    evaluation |= {"stops": {"success": 170, "truncated": 30}, "requests": {"requests": 50} | requests}
    (line,) = [
        line
        for line in summary(evaluation, run_of(path.parent)).splitlines()
        if "'response too long'" in line
    ]
    assert ("--set sampling.max_tokens=" in line, "the server's own limit" in line) == (
        at_the_limit,
        by_the_server,
    ), line
