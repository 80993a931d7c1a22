"""The mean training scores of result.json, by the rule of each schema, and their verification."""

import json
import shutil

import pytest

from r3l.core.errors import DataError
from r3l.evaluation.verification import verify
from r3l.files.digests import SUMS
from r3l.files.json_files import columns_path, read_json, read_jsonl, write_columns
from r3l.files.paths import STORED
from r3l.runs.result import best_before_fall, final_scores

GROUPS = ("train/success/easy", "train/success/hard")
STEPS = [  # success of a step, of its easy tasks and of its hard ones
    (1.0, 1.0, None),  # before the last five
    (0.5, 0.5, None),
    (0.75, 1.0, 0.5),
    (0.0, None, 0.0),
    (0.25, None, 0.25),
    (0.5, None, 0.5),
]


def step(success, *of_groups):
    known = {name: value for name, value in zip(GROUPS, of_groups, strict=True) if value is not None}
    return {"train/success": success, **known, "loss": 1.0}


def steps_of(*successes):
    return [{"step": number, "train/success": success} for number, success in enumerate(successes, 1)]


def test_a_fall_is_told_from_the_best_five_steps():
    """Steps 2 to 6 and 3 to 7 have a mean of 4.5 / 5, the last five 0.5. In the others steps 1 to 5 and 2 to 6
    have 4 / 5, the last five 2.5 / 5 or 2.75 / 5."""
    assert best_before_fall(steps_of(0, 0.5, 1, 1, 1, 1, 0.5, 0.5, 0.5, 0.5, 0.5)) == (0.9, 7)
    assert best_before_fall(steps_of(0, 1, 1, 1, 1, 0, 0, 0.5, 1, 1)) == (0.8, 6)
    assert best_before_fall(steps_of(0, 1, 1, 1, 1, 0, 0, 0.75, 1, 1)) is None
    assert best_before_fall(steps_of(1, 1, 0, 0)) is None and best_before_fall([]) is None


def test_a_groups_mean_is_over_the_steps_that_have_its_tasks():
    """Easy tasks are in two of the last five steps, hard ones in four; schema 1 divided by five."""
    metrics = [step(*values) for values in STEPS]
    assert final_scores(metrics) == {"train/success": 0.4, GROUPS[0]: 0.75, GROUPS[1]: 0.3125}
    assert final_scores(metrics, 1) == {"train/success": 0.4, GROUPS[0]: 0.3, GROUPS[1]: 0.25}
    assert final_scores([]) == {}
    with pytest.raises(ValueError, match="schema 3"):
        final_scores(metrics, 3)


def test_verify_takes_the_rule_of_the_schema_that_a_result_states(tmp_path):
    """A stored run whose last step had no easy task: each rule's mean passes under its own schema only."""
    run = tmp_path / "run"
    shutil.copytree(STORED / "nano/math/math-1.5m/grpo/seed0", run)
    (run / SUMS).unlink()
    rows = read_jsonl(run / "metrics.jsonl")
    easy = rows[-1].pop(GROUPS[0])
    assert easy > 0
    write_columns(columns_path(run / "metrics.jsonl"), rows)
    result = read_json(run / "result.json")
    assert result["schema"] == 1
    old, new = final_scores(rows, 1), final_scores(rows)
    assert new[GROUPS[0]] == pytest.approx(old[GROUPS[0]] * 5 / 4)
    for schema, final, passes in ((1, old, True), (2, new, True), (1, new, False), (2, old, False)):
        (run / "result.json").write_text(json.dumps(result | {"schema": schema, "final": final}))
        (run / SUMS).unlink(missing_ok=True)
        if passes:
            verify(run)
        else:
            with pytest.raises(DataError, match="result.json: 'final' is"):
                verify(run)
    (run / "result.json").write_text(json.dumps(result | {"schema": 3, "final": new}))
    with pytest.raises(DataError, match="'schema' is 3, and this version of r3l knows 1 to 2"):
        verify(run)
