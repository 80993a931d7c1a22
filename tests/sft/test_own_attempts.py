"""Examples from the model's own attempts: what is kept, dropped and taught; resuming."""

import itertools
import json

import numpy as np
import pytest
import yaml
from r3l.envs.registry import find_environment
from safetensors.torch import load_file
from scripted import Scripted, review, say

from r3l.config import sft_recipe as recipes
from r3l.config.sft_recipe import CritiquedFailures
from r3l.core.errors import ConfigError, DataError
from r3l.processes.barrier import together
from r3l.sft import training
from r3l.sft.own_attempts import criticise, example_of, explore, sentence
from r3l.sft.training import build

LIMITS = {"temperature": 1.0, "max_tokens": 32, "feedback_max_tokens": 96, "max_context": 1536}
RATES = {"low": 0.1, "high": 0.5, "systematic": 0.8, "overlook": 0.4}
STEPS = {"steps": 1, "decay_steps": 1, "warmup_steps": 0, "lr": 1e-3}


def sampled(first, tasks=4, **changes):
    return {"first_task": first, "tasks": tasks, "attempts": 4, "sampling": LIMITS, **STEPS, **changes}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes a recipe for WebShop of one scripted phase and those given, on the stored nano model."""
    stored = yaml.safe_load((recipes.CONFIGS / "sft" / "webshop-1.5m.yaml").read_text())
    scripted = {**stored["phases"][0], "tasks": 2, **STEPS}
    (tmp_path / "sft").mkdir()
    monkeypatch.setattr(recipes, "CONFIGS", tmp_path)

    def write(*phases, **settings):
        adapter = {"model": "webshop-1.5m", "optimizer": "adamw", "lora": {"rank": 2, "alpha": 4}}
        changed = {"name": "tiny", "tokens_per_step": 600, **adapter, **settings}
        content = {**stored, **changed, "phases": [scripted, *phases]}
        (tmp_path / "sft" / "tiny.yaml").write_text(yaml.safe_dump(content))
        return recipes.load_config("tiny")

    return write


class ByMember(Scripted):
    """Speaks from the script of each member, by what is asked for."""

    def say(self, address):
        kind, member = address[3], address[5]
        return next(self.responses[kind, member])


def test_reflections_are_kept_where_their_retry_solves_the_task(recipe):
    """Six attempts at a real goal: one solved, one kept reflection, four dropped for a reason each."""
    config = recipe(sampled(7, tasks=1, attempts=6), guidance="full_report", max_turns=4)
    task = find_environment("webshop").demonstrator().task(7)
    (solution,) = find_environment("webshop").expert_demonstrations([task], 10)
    right = [step.response for step in solution.steps]
    assert solution.success and len(right) <= 4
    wrong = [say("search[shirt]"), say("click[next >]"), say("click[next >]"), say("click[next >]")]
    member = itertools.count()
    script = {("rollout", next(member)): right}
    for reflection, retry in (
        (review(0), right),
        (review(1), wrong[1:]),
        (review(9), []),
        ("I do not know", []),
        (review(None, trajectory_outcome="success", improvement_suggestion=None), []),
    ):
        k = next(member)
        script |= {("rollout", k): wrong, ("reflection", k): [reflection], ("retry", k): retry}
    policy = ByMember(script)
    kept, counts = explore(policy, together, config, 1, workers=0)
    assert counts == {
        "attempts": 6,
        "solved": 1,
        "reflections": 5,
        "kept": 1,
        "dropped": {
            "finds nothing to improve": 1,
            "retry failed": 1,
            "invalid: no_json": 1,
            "invalid: pivot_out_of_range": 1,
        },
    }
    assert sentence(counts) == (
        "6 attempts, 1 solved; 5 reflections on failures: kept (1), finds nothing to improve (1), "
        "retry failed (1), invalid: no_json (1), invalid: pivot_out_of_range (1)"
    )

    # The reflection trains in the dialog of its attempt, and the retry under its guidance from the first turn.
    reflection, retry = kept
    assert [turn.response for turn in reflection.turns] == [*wrong, review(0)]
    assert [turn.response for turn in retry.turns] == right
    assert any("go on" in m.content for where, asked in policy.asked if "retry" in where for m in asked)
    of_reflection, of_retry = (example_of(t, 0.25) for t in kept)
    assert of_reflection.weight[-2:].tolist() == [1, 1] and np.sum(of_reflection.weight == 1) == 2
    assert np.sum(of_reflection.weight == 0) == 8  # four responses of two tokens, which are not imitated
    assert np.sum(of_retry.weight == 1) == 2 * len(right)
    assert of_reflection.ids.tolist() == reflection.token_ids().tolist()


def test_the_critic_reflects_on_the_failures_of_the_model(recipe):
    """Three attempts at a real goal: a success, a failure, and one ended by an unusable response.

    The two failures are examples, with the critic's text instead of what the model would write.
    """
    config = recipe(max_turns=4)
    phase = config.phases[0].model_copy(
        update={"critiqued": CritiquedFailures(first_task=7, tasks=1, attempts=3, sampling=LIMITS)}
    )
    config = config.model_copy(update={"phases": [phase]})
    task = find_environment("webshop").demonstrator().task(7)
    (solution,) = find_environment("webshop").expert_demonstrations([task], 10)
    right = [step.response for step in solution.steps]
    wrong = [say("search[shirt]"), say("click[next >]"), say("click[next >]"), say("click[next >]")]
    scripts = [right, wrong, ["I do not know"]]
    policy = ByMember({("rollout", k): iter(script) for k, script in enumerate(scripts)})
    kept, counts = criticise(policy, together, config, 0, workers=0)
    assert counts == {"attempts": 3, "solved": 1, "reflections": 2, "kept": 2, "dropped": {}}
    for reflection, attempt in zip(kept, (wrong, ["I do not know"]), strict=True):
        *responses, text = (turn.response for turn in reflection.turns)
        document = json.loads(text)
        assert responses == attempt and document["trajectory_outcome"] == "failure"
        assert document["retry_from_step"] == 0 and document["improvement_suggestion"]
        example = example_of(reflection, 0.25)
        assert example.weight[-1] == 1 and np.sum(example.weight == 0) == 2 * len(attempt)


def test_a_phase_of_critiqued_failures_teaches_them_beside_demonstrations(recipe, tmp_path, capsys):
    critiqued = {"first_task": 2, "tasks": 4, "attempts": 4, "sampling": LIMITS}
    scripted = {"first_task": 0, "tasks": 2, "variants": 1, "error_rates": RATES, **STEPS}
    shares = {"episode": 0.5, "reflection": 0.5}
    recipe({**scripted, "critiqued": critiqued, "shares": shares})
    made = build("tiny", tmp_path / "made", workers=0)
    counts = made["examples"][1]
    assert counts["attempts"] == 16 and counts["kept"] == counts["reflection"]["examples"] > 0
    assert counts["kept"] == counts["reflections"] == 16 - counts["solved"]
    assert counts["episode"]["examples"] == 2
    assert f"phase 2: {sentence(counts)}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        ({"shares": {"episode": 0.5}}, "shares of a phase must add up to 1, not to 0.5"),
        ({"critiqued": {"first_task": 0, "tasks": 1, "attempts": 1, "sampling": LIMITS}}, "phase 2 has crit"),
    ],
)
def test_phases_whose_shares_contradict_them_are_refused(recipe, phase, reason):
    scripted = {"first_task": 0, "tasks": 2, "variants": 1, "error_rates": RATES, **STEPS}
    with pytest.raises(ConfigError, match=reason):
        recipe({**scripted, **phase})


def test_rounds_of_rejection_sampling_resume_to_the_same_bytes(recipe, tmp_path, monkeypatch, capsys):
    """Killed in the second round after it was played: the round is played again, by the loaded model."""
    recipe(sampled(2), sampled(6, reflections=2))
    whole = build("tiny", tmp_path / "whole", workers=0)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("phase ")]
    for number, counts in enumerate(whole["examples"][1:], start=2):
        assert counts["attempts"] == 16 and 0 < counts["kept"] == counts["episode"]["examples"]
        assert counts["retry"]["examples"] == counts["kept"]
        assert counts["kept"] + sum(counts["dropped"].values()) == counts["reflections"]
        assert counts["reflections"] == (number - 1) * (16 - counts["solved"])
        assert lines[number - 2] == f"phase {number}: {sentence(counts)}"

    class Killed(BaseException):
        pass

    fit = training.fit

    def killed_in_the_third_phase(*arguments):
        if arguments[3] == 2:
            raise Killed
        return fit(*arguments)

    monkeypatch.setattr(training, "fit", killed_in_the_third_phase)
    with pytest.raises(Killed):
        build("tiny", tmp_path / "resumed", workers=0)
    assert not (tmp_path / "resumed").exists()
    monkeypatch.setattr(training, "fit", fit)
    resumed = build("tiny", tmp_path / "resumed", workers=1)
    assert (resumed["examples"], resumed["loss"]) == (whole["examples"], whole["loss"])
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "resumed"))
    assert all(one[name].equal(other[name]) for name in one)


def test_a_phase_that_keeps_nothing_says_why(recipe, tmp_path):
    recipe(sampled(2, tasks=1, attempts=2), max_turns=1)  # nothing is bought in one turn
    with pytest.raises(DataError, match=r"phase 2 of recipe tiny .*: kept \(0\), .*more tasks or attempts"):
        build("tiny", tmp_path / "h", workers=0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"guidance": "none"}, "keeps reflections by their guided retries: set guidance"),
        ({"prompts": "full"}, "teaches reflections: set reflection_share above 0"),
    ],
)
def test_recipes_that_could_not_teach_reflections_are_refused(recipe, settings, reason):
    with pytest.raises(ConfigError, match=reason):
        recipe(sampled(0), **settings)


def test_a_new_model_does_not_begin_with_its_own_reflections(recipe, tmp_path):
    recipe(sampled(0), model=None, lora={})
    path = tmp_path / "sft" / "tiny.yaml"
    content = yaml.safe_load(path.read_text())
    path.write_text(yaml.safe_dump(content | {"phases": content["phases"][1:]}))
    with pytest.raises(ConfigError, match="a new nano model cannot begin with its own attempts"):
        build("tiny", tmp_path / "h", workers=0)


@pytest.mark.parametrize(
    ("name", "continued", "further"),
    [("smol_webshop_cpu_sampled", "smol_webshop_cpu", 2), ("smol_webshop_critic", "smol_webshop_hints", 1)],
)
def test_recipes_with_own_attempts_continue_a_scripted_one(name, continued, further):
    plain, rounds = (json.loads(recipes.load_config(of).model_dump_json()) for of in (continued, name))
    first, *others = rounds.pop("phases")
    assert [first] == plain.pop("phases") and len(others) == further
    for recipe in (plain, rounds):
        del recipe["name"], recipe["sources"]
    assert rounds == plain
