"""A start model's build is cut into phases and can be taken up after any of them."""

import json

import pytest
import torch
import yaml
from safetensors.torch import load_file

from r3l.core.errors import DataError
from r3l.local import warmstart


def phase(first, lr):
    return {
        "first_task": first,
        "tasks": 16,
        "variants": 1,
        "steps": 2,
        "decay_steps": 2,
        "warmup_steps": 0,
        "lr": lr,
    }


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes a recipe of the phases given, for mathematics."""
    stored = yaml.safe_load((warmstart.CONFIGS / "warmstart" / "nano_math.yaml").read_text())
    manner = stored["phases"][0]["manner"]
    (tmp_path / "warmstart").mkdir()
    monkeypatch.setattr(warmstart, "CONFIGS", tmp_path)

    def write(*phases):
        changed = {"name": "tiny", "tokens_per_step": 300, "phases": [{**p, "manner": manner} for p in phases]}
        (tmp_path / "warmstart" / "tiny.yaml").write_text(yaml.safe_dump({**stored, **changed}))

    return write


def test_a_build_cut_off_after_a_phase_ends_as_an_uninterrupted_one(recipe, tmp_path):
    recipe(phase(0, 1e-3), phase(16, 5e-4))
    whole = warmstart.build("tiny", tmp_path / "whole", workers=1)
    config = warmstart.load_config("tiny")
    recipe(phase(0, 1e-3))  # the first phase alone is what a cut off build leaves
    warmstart.build("tiny", tmp_path / "cut", workers=1)
    path = tmp_path / "cut" / "warmstart.json"
    left = json.loads(path.read_text())
    path.write_text(json.dumps({**left, "config": config.model_dump(mode="json")}))
    recipe(phase(0, 1e-3), phase(16, 5e-4))
    resumed = warmstart.build("tiny", tmp_path / "cut", workers=1)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert whole["weights_sha256"] == resumed["weights_sha256"] and len(resumed["lessons"]) == 2
    with pytest.raises(DataError, match="already holds a model"):
        warmstart.build("tiny", tmp_path / "cut", workers=1)


def test_phases_of_another_recipe_are_not_built_upon(recipe, tmp_path):
    recipe(phase(0, 1e-3))
    warmstart.build("tiny", tmp_path / "old", workers=1)
    recipe(phase(0, 2e-3), phase(16, 5e-4))
    with pytest.raises(DataError, match="of another configuration"):
        warmstart.build("tiny", tmp_path / "old", workers=1)
    recipe(phase(0, 1e-3), phase(16, 5e-4))
    (tmp_path / "old" / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="not the one that"):
        warmstart.build("tiny", tmp_path / "old", workers=1)
