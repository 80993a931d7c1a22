"""Columns of question sets: runs that were trained on one task set and scored on others."""

import json

import pytest
from report.runs import write_run

from r3l.core.errors import DataError
from r3l.evaluation.verification import sign
from r3l.report import tables
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_further, find_runs
from r3l.workflow import plan

MODEL = "qwen2.5-1.5b"


def score_on(path, task_set, right):
    """What `r3l evaluate RUN_DIR --task-set` leaves, with ``right`` of ten answers right."""
    folder = path.parent / "evaluations" / task_set
    folder.mkdir(parents=True)
    bits = [k < right for k in range(10)]
    common = {"group": "en", "member": 0, "stop_reason": "success", "turns": 1, "tokens": 2}
    episodes = [common | {"task": str(k), "success": b, "reward": float(b)} for k, b in enumerate(bits)]
    scores = {"episodes": 10, "success": right / 10, "reward": right / 10}
    changed = {
        "task_set": {"name": task_set, "sha256": task_set, "tasks": 10},
        "episodes": 10,
        "groups": {"all": scores, "en": scores},
    }
    (folder / "evaluation.json").write_text(json.dumps(json.loads(path.read_text()) | changed))
    (folder / "episodes.jsonl").write_text("".join(json.dumps(e) + "\n" for e in episodes))
    sign(folder)


@pytest.fixture
def results(tmp_path):
    for seed, right in enumerate((6, 7, 8)):
        path = write_run(tmp_path, "r3l", seed, [1, 0], [0, 0], tier="paper", model=MODEL, env="dapo")
        score_on(path, "gsm8k/test", right)
    return tmp_path


def test_a_question_set_is_a_column_of_its_own_against_its_published_number(results):
    """6, 7 and 8 of 10 right: 0.7 +- 4.3027 * 0.1 / sqrt(3); the paper's 0.721 lies within."""
    own = find_runs(results)
    runs = read_runs([*own, *(further for path in own for further in find_further(path.parent))])
    built = tables.build(plan.tables()["table1"], runs, ["r3l"], 3, "paper")
    row = {row["env"]: row for row in built.flat if row["group"] == "all"}
    assert (row["dapo"]["mean"], row["GSM8K"]["mean"], row["GSM8K"]["low"]) == (0.25, 0.7, 0.4516)
    assert (row["GSM8K"]["task_set"], row["GSM8K"]["seeds_done"]) == ("gsm8k/test", 3)
    assert (row["GSM8K"]["paper"], row["GSM8K"]["verdict"]) == (0.721, "within interval")
    assert built.printed.section("Qwen2.5-1.5B-Instruct, ours")["R3L"]["GSM8K"].text == "0.700 ± 0.248"


def test_an_evaluation_that_was_changed_is_refused(results):
    changed = find_further(find_runs(results)[0].parent)[0]
    changed.write_text(changed.read_text().replace('"success": 0.6', '"success": 0.9'))
    with pytest.raises(DataError, match=r"gsm8k/test: evaluation\.json changed after the run was evaluated"):
        read_runs([changed])
