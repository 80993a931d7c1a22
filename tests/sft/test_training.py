"""A start model's build is cut into phases and can be taken up after any of them."""

import asyncio
import json

import pytest
import torch
import yaml
from safetensors.torch import load_file
from scripted import Scripted, rollout_context

from r3l import config
from r3l.algorithm import R3L
from r3l.config import resolve
from r3l.core import paths
from r3l.core.errors import ConfigError, DataError
from r3l.core.paths import STORED_MODELS
from r3l.core.pool import EnvironmentPool
from r3l.envs.registry import find_environment
from r3l.reflection import reflection_text
from r3l.sft import recipe as recipes
from r3l.sft.examples import documents_of
from r3l.sft.training import build


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
    stored = yaml.safe_load((recipes.CONFIGS / "sft" / "nano_math.yaml").read_text())
    error_rates = stored["phases"][0]["error_rates"]
    (tmp_path / "sft").mkdir()
    monkeypatch.setattr(recipes, "CONFIGS", tmp_path)

    def write(*phases):
        changed = {
            "name": "tiny",
            "tokens_per_step": 300,
            "phases": [{**p, "error_rates": error_rates} for p in phases],
        }
        (tmp_path / "sft" / "tiny.yaml").write_text(yaml.safe_dump({**stored, **changed}))

    return write


def test_a_build_cut_off_after_a_phase_ends_as_an_uninterrupted_one(recipe, tmp_path):
    recipe(phase(0, 1e-3), phase(16, 5e-4))
    whole = build("tiny", tmp_path / "whole", workers=1)
    recipe_of_both = recipes.load_config("tiny")
    recipe(phase(0, 1e-3))  # the first phase alone is what a cut off build leaves
    build("tiny", tmp_path / "cut", workers=1)
    path = tmp_path / "cut" / "sft.json"
    left = json.loads(path.read_text())
    path.write_text(json.dumps({**left, "config": recipe_of_both.model_dump(mode="json")}))
    recipe(phase(0, 1e-3), phase(16, 5e-4))
    resumed = build("tiny", tmp_path / "cut", workers=1)
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert whole["weights_sha256"] == resumed["weights_sha256"] and len(resumed["examples"]) == 2
    with pytest.raises(DataError, match="already holds a model"):
        build("tiny", tmp_path / "cut", workers=1)


def test_phases_of_another_recipe_are_not_built_upon(recipe, tmp_path):
    recipe(phase(0, 1e-3))
    build("tiny", tmp_path / "old", workers=1)
    recipe(phase(0, 2e-3), phase(16, 5e-4))
    with pytest.raises(DataError, match="of another configuration"):
        build("tiny", tmp_path / "old", workers=1)
    recipe(phase(0, 1e-3), phase(16, 5e-4))
    (tmp_path / "old" / "model.safetensors").write_bytes(b"")
    with pytest.raises(DataError, match="not the one that"):
        build("tiny", tmp_path / "old", workers=1)


@pytest.fixture(scope="module")
def erring():
    """A demonstration with a retry that does not start over."""
    error_rates = {"low": 0.3, "high": 0.5, "systematic": 0.8, "overlook": 0.5}
    found = find_environment("alfworld").demonstrations(range(40), 1, 8, error_rates)
    return next(d for d in found if d.retry and d.critique.turn > 0 and not d.error)


@pytest.mark.parametrize(("style", "guidance"), [("compact", "suggestion"), ("released", "full_report")])
def test_lessons_are_the_dialogs_that_the_method_has(erring, style, guidance):
    """R3L plays the demonstration's own responses: every message that it asks with stands in a SFT example, in
    order."""
    settings = {"group_size": 2, "guidance": guidance, "guidance_place": "user_turn"}
    said = {
        "rollout": [step.response for step in erring.steps],
        "reflection": [reflection_text(erring.critique)],
        "retry": [step.response for step in erring.retry],
    }
    policy, pool = Scripted(said), EnvironmentPool(find_environment("alfworld"), 0)
    asyncio.run(R3L(settings).explore(erring.task, rollout_context(policy, pool, max_turns=8, style=style)))
    pool.close()
    asked = {kind: [messages for address, messages in policy.asked if address[1] == kind] for kind in said}

    dialogue = find_environment("alfworld").dialogue(style, 8)
    taught = dict(documents_of(dialogue, erring, guidance))
    episode = [messages for messages, _, _ in taught["episode"]]
    if style == "compact":
        assert episode == asked["rollout"] + asked["reflection"]
    else:
        assert episode == asked["rollout"] and [taught["review"][0][0]] == asked["reflection"]
    pivot = erring.critique.turn
    assert [messages for messages, _, _ in taught["retry"]][pivot:] == asked["retry"]
    assert [trained for _, _, trained in taught["retry"]] == [k >= pivot for k in range(pivot + len(erring.retry))]


def test_a_model_of_elsewhere_is_taught_and_runs_start_from_it(recipe, tmp_path, monkeypatch):
    """The stored nano model stands in for a published one; SFT examples over the limit are counted."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    recipe(phase(0, 1e-3))
    path = tmp_path / "sft" / "tiny.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "model": "nano_math", "max_tokens": 70}))
    target = recipes.place_of("tiny")
    assert target == tmp_path / "cache" / "models" / "nano_math-tiny"
    run = resolve("nano", "math", "grpo", 0)
    staged = run.model_copy(update={"env_settings": run.env_settings.model_copy(update={"sft": "tiny"})})
    (tmp_path / "envs").symlink_to(config.CONFIGS / "envs")
    monkeypatch.setattr(paths, "CONFIGS", tmp_path)
    assert config.start_of(run) == run.model
    with pytest.raises(ConfigError, match="make it with r3l sft tiny --model nano_math"):
        config.start_of(staged)
    made = build("tiny", target, workers=1)
    assert config.start_of(staged) == str(target)
    assert made["examples"][0]["too_long"] > 0
    start, taught = (load_file(folder / "model.safetensors") for folder in (STORED_MODELS / "nano_math", target))
    assert any(not torch.equal(start[name], taught[name]) for name in start)
    fingerprints = {run.fingerprint(), staged.fingerprint()}
    path.write_text(path.read_text().replace("tokens_per_step: 300", "tokens_per_step: 301"))
    assert len(fingerprints | {staged.fingerprint()}) == 3  # another recipe, another run
