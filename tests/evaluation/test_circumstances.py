"""What is printed beside a score."""

import json

from r3l.evaluation.circumstances import summary, warnings
from r3l.files.paths import STORED


def test_a_stored_score_with_its_circumstances():
    path = STORED / "nano/alfworld/alfworld-1.5m-hints/r3l/seed0/evaluation.json"
    text = summary(json.loads(path.read_text(encoding="utf-8")), 16)
    # 112 of 200, Wilson: (0.56 + 1.9207/200 -+ 1.96 sqrt(0.2464/200 + 0.9604/200^2)) / (1 + 3.8415/200)
    assert "success 0.560 (95 % interval 0.491 to 0.627); easy 0.580, hard 0.540" in text
    assert "200 episodes on task set small/test (200 tasks), at most 16 turns, temperature 0.4" in text
    assert "success 112, turn limit 48, inadmissible action 39, repetition 1" in text
    assert "warning" not in text


def test_a_zero_that_the_setting_made_is_not_a_score():
    (warning,) = warnings({"context": 200}, 200, {})
    assert "200 of 200" in warning and "sampling.max_context" in warning
    assert warnings({"truncated": 20, "success": 180}, 200, {}) == []  # a tenth is not more than a tenth
    assert len(warnings({"truncated": 21, "format": 50, "success": 129}, 200, {})) == 2


def test_a_warning_shows_what_the_model_wrote():
    (short,) = warnings({"format": 1}, 1, {"format": ["t1", "I look\n\x1b[31maround."]})
    assert short.endswith('For example, task t1: "I look\\n\\u001b[31maround."')
    (long,) = warnings({"truncated": 1}, 1, {"truncated": ["t1", "a" * 999 + "b" * 150]})
    assert long.endswith(f't1: "{"a" * 150} ... {"b" * 150}"')
