"""The stored run of the trinity engine: its numbers follow from its lines, and they are those of the local engine."""

import pytest

from r3l.core.files import read_jsonl
from r3l.core.paths import STORED
from r3l.evaluation import stored

CELL = "nano/alfworld/nano/r3l"
LOCAL = STORED / CELL / "seed0"
TRINITY = STORED / "trinity" / f"{CELL}@engine=trinity" / "seed0"


def test_every_number_follows_from_its_raw_lines():
    stored.verify(TRINITY)


def test_every_step_is_the_local_engines():
    ours, theirs = (read_jsonl(folder / "metrics.jsonl") for folder in (LOCAL, TRINITY))
    assert len(ours) == len(theirs) == 20
    for a, b in zip(ours, theirs, strict=True):
        shared = {key for key in a if key in b and not key.startswith("seconds/")}
        assert len(shared) > 60
        for key in shared:
            assert b[key] == pytest.approx(a[key], abs=1e-5), (a["step"], key)
        assert a["grad_norm"] == b["grad_norm"] and a["tokens/generated"] == b["tokens/generated"]


def test_the_trained_models_play_the_same_episodes_token_for_token():
    ours, theirs = (read_jsonl(folder / "episodes.jsonl") for folder in (LOCAL, TRINITY))
    assert len(ours) == 200 and ours == theirs  # with the hash of each transcript
