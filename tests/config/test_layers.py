"""The layer that sets a value, and tuned learning rates in the files of methods."""

import shlex
import shutil
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from r3l.config import (
    TierConfig,
    environment,
    explained,
    hashed,
    load,
    load_method,
    resolve,
    train_command,
    variant,
)
from r3l.config import tuning as config_tuning
from r3l.config.options import method_options
from r3l.core.errors import ConfigError
from r3l.evaluation.tuning import RULE
from r3l.files.json_files import read_json
from r3l.files.paths import ROOT, STORED

TUNED_FROM = "alfworld-1.5m-hints"  # ALFWorld's rates; the checkpoint in use has none
TUNINGS = [read_json(path) for path in sorted((STORED / "tuning").glob("*/*/*.json"))]


def places(*arguments, **options):
    return {row.key: (row.value, row.place) for row in explained(*arguments, **options)}


def test_every_value_is_explained_by_the_layer_that_sets_it():
    rows = explained("nano", "math", "r3l_no_credit@alpha=5", overrides=["train.steps=3"])
    found = {row.key: (row.value, row.place, row.source) for row in rows}
    assert found["train.lr"] == (
        1e-4,
        "configs/methods/r3l.yaml",
        "r3l tune: results/stored/tuning/nano/math/r3l.json",
    )
    assert found["train.steps"][:2] == (3, "--set")
    assert found["method_settings.alpha"][:2] == (5, "r3l_no_credit@alpha=5")
    assert found["method_settings.credit"][:2] == ([], "configs/methods/r3l_no_credit.yaml")
    assert found["method_settings.guidance"][:2] == ("suggestion", "configs/methods/r3l.yaml")
    assert found["train.tasks_per_step"][:2] == (16, "configs/envs/math.yaml")
    assert (
        found["sampling.temperature"][1] == "configs/tiers/nano.yaml"
        and "audit 4.1" in found["sampling.temperature"][2]
    )
    assert found["train.weight_decay"] == (0.01, "default", "released code (audit 0.4)")
    assert (
        found["env_settings.options.turns"][1] == "default"
        and found["method_settings.group_size"][1] == "default"
    )
    run = resolve("nano", "math", "r3l_no_credit@alpha=5", 0, overrides=["train.steps=3"])
    assert {key.removeprefix("method_settings.") for key in found if "method_settings" in key} == {
        *run.method_settings
    }


def test_a_model_and_a_profile_change_values_too():
    found = places("paper", "alfworld", "r3l", model="qwen3-4b", overrides=["profile=released_code"])
    assert found["samples"] == ("turn", "configs/models/qwen3-4b.yaml") and found["model"] == (
        "qwen3-4b",
        "--model",
    )
    assert found["env_settings.options.response_format"] == ("released", "configs/envs/alfworld.yaml")
    assert found["method_settings.credit_rule"] == ("released_inverted", "configs/methods/r3l.yaml")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A method and an environment of a user's, the examples, with settings that are mappings."""
    for name in ("shortest", "guess"):
        for path in (ROOT / "examples").glob(f"{name}.*"):
            shutil.copy(path, tmp_path)
    method = tmp_path / "shortest.py"
    weights = 'weights: dict[str, float] = option({"long": 0.5, "short": 1.0}, "of a length", "our guess")'
    kind = 'kind: Literal[1, "two"] = option(1, "a kind", "our guess")'
    method.write_text(
        method.read_text()
        .replace("    group_size:", f"    {weights}\n    {kind}\n    group_size:")
        .replace("from pydantic", "from typing import Literal\n\nfrom pydantic")
        .replace("from r3l.core.rollout", "from r3l.core.option import option\nfrom r3l.core.rollout")
    )
    env = tmp_path / "guess.py"
    bonus = 'bonus: dict[str, Any] = option({"early": {"turns": 2}}, "for few guesses", "our guess")'
    env.write_text(
        "from typing import Any\n\nfrom r3l.core.option import option\nfrom r3l.envs.base.package import Options\n"
        f"\n\nclass Rules(Options):\n    {bonus}\n\n\n"
        + env.read_text().replace('    name = "guess"', '    name = "guess"\n    options = Rules')
    )
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    monkeypatch.setenv("R3L_ENVS", str(tmp_path))
    # Folders of earlier tests stay in sys.path, and would come first with the examples as they are.
    examples = ("shortest.py", "guess.py")
    others = [folder for folder in sys.path if not any((Path(folder) / name).is_file() for name in examples)]
    monkeypatch.setattr(sys, "path", others)
    for name in ("shortest", "guess"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    environment._package_of_code.cache_clear()
    yield tmp_path
    for name in ("shortest", "guess"):
        sys.modules.pop(name, None)
    environment._package_of_code.cache_clear()


def test_settings_that_are_mappings_are_explained_key_by_key(own):
    def found(**options):
        rows = explained("nano", "guess", "shortest", **options)
        return {row.key: (row.value, row.place, row.source) for row in rows}

    weight = "method_settings.weights.long"
    usual = found()
    assert usual[weight] == (0.5, "default", "our guess")
    assert usual["env_settings.options.bonus.early.turns"] == (2, "default", "our guess")
    assert found(overrides=[f"{weight}=0.1"])[weight] == (0.1, "--set", "the command line")
    file = own / "shortest.yaml"
    config = file.read_text().replace("settings: {", "settings: {weights: {long: 2}, ")
    file.write_text(config.replace("sources: {", 'sources: {settings.weights: "read", '))
    assert found()[weight] == (2, str(file), "read")


def test_settings_of_every_type_are_listed(own):
    declared = {option.option: option for option in method_options(["shortest"])}
    weights, kind = declared["weights"], declared["kind"]
    assert (weights.values, weights.default) == ("mapping", "{'long': 0.5, 'short': 1.0}")
    assert (kind.values, kind.default, kind.used_by) == ("1 | two", "1", "shortest")


def test_the_line_with_a_tuned_rate_names_the_file_of_the_method(own):
    line = config_tuning.yaml_line("nano", "math", variant("shortest@group_size=8"), 3e-4)
    assert line == f"{own}/shortest.yaml: under rates, nano@group_size=8: {{math: 0.0003}}"
    line = config_tuning.yaml_line("nano", "math", variant("grpo"), 3e-4)
    assert line == "configs/methods/grpo.yaml: under rates, nano: {math: 0.0003}"


@pytest.mark.parametrize(
    ("env", "base", "key"),
    [("scienceworld", None, "scienceworld"), ("alfworld", TUNED_FROM, f"alfworld/{TUNED_FROM}")],
)
def test_a_tuned_rate_holds_where_it_was_tuned(env, base, key):
    """For the row, its method and what that extends; not for another profile or model, or a row with a
    rate. ``base``: the base checkpoint from which it was tuned, None for the usual one."""
    rate = load_method("r3l").rates["nano"][key]
    usual = load("tiers", "nano", TierConfig).train.lr
    assert rate != usual

    def lr(method, *overrides, model=base, **options):
        return resolve("nano", env, method, 0, model, list(overrides), **options).train.lr

    assert lr("r3l") == lr("r3l@alpha=5") == lr("r3l_no_credit") == lr("r3l@profile=paper") == rate
    assert lr("r3l@profile=fair") == lr("r3l", model="math-1.5m") == lr("r3l", tuned=False) == usual
    assert lr("r3l@train.lr=0.5") == lr("r3l", "train.lr=0.5") == 0.5
    assert lr("rltf_fm@feedback=environment") == 9e-4 != lr("rltf_fm")  # only that variant was tuned


def test_a_base_checkpoint_without_tuned_rates_has_the_tier_s():
    """ALFWorld's were tuned from the checkpoint that was in use before."""
    run = resolve("nano", "alfworld", "r3l", 0)
    assert run.model == "alfworld-1.5m-plain" and run.train.lr == 3e-4
    assert resolve("nano", "alfworld", "r3l", 0, TUNED_FROM).train.lr == 1e-4


@pytest.mark.parametrize("tuning", TUNINGS, ids=lambda tuning: f"{tuning['env']}/{tuning['method']}")
def test_rates_in_the_files_are_those_that_the_stored_tunings_chose(tuning):
    """And the tunings are of runs as they are made today; by the earlier rule these had 30 updates.

    Tunings by today's rule came after the registered runs of their methods, which are stored under the plain
    name at GRPO's rate: these methods keep it.
    """
    tier, env, row = tuning["tier"], tuning["env"], variant(tuning["method"])
    later = tuning["rule"] == RULE
    base = TUNED_FROM if env == "alfworld" and not later else None
    kept = resolve(tier, env, "grpo", 0, base).train.lr if later else tuning["chosen"]
    assert resolve(tier, env, row, 0, base).train.lr == pytest.approx(kept)
    for rate in tuning["rates"]:
        for run in rate["runs"]:
            tried = config_tuning.at_rate(row, f"{rate['lr']:.3g}")
            tried = tried if later else tried.changed(**{"train.steps": "30"})
            assert resolve(tier, env, tried, run["seed"], base).fingerprint() == run["fingerprint"]


def test_a_set_option_cannot_contradict_the_name_of_the_row():
    """Its runs would have one value in their name and another in their settings."""
    with pytest.raises(ConfigError, match=r"--set alpha=6.*named r3l@alpha=5.*--method.*r3l@alpha=6"):
        resolve("nano", "math", "r3l@alpha=5", 0, overrides=["alpha=6"])
    assert resolve("nano", "math", "r3l@alpha=5", 0, overrides=["alpha=5"]).method_settings["alpha"] == 5
    with pytest.raises(ConfigError, match=r"--set train.lr=0.0003"):
        resolve("nano", "math", "grpo@train.lr=0.001", 0, overrides=["train.lr=0.0003"])


def test_a_run_has_a_command_that_makes_it_again():
    """Its model and changed settings are in it; what decides no result (workers) is not."""
    overrides = ["alpha=5", "train.betas=[0.8,0.9]", "prompts=full", "workers=0", "evaluation.tasks=4"]
    run = resolve("nano", "math", "r3l@retries=2", 3, "puzzles-1.5m", overrides)
    command, *words = shlex.split(train_command(run).removeprefix("r3l "))
    options = list(zip(words[::2], words[1::2], strict=True))
    changes = [value for option, value in options if option == "--set"]
    given = {option: value for option, value in options if option != "--set"}
    assert command == "train" and given == {
        "--tier": "nano",
        "--env": "math",
        "--method": "r3l@retries=2",
        "--seed": "3",
        "--model": "puzzles-1.5m",
    }
    assert not any(change.startswith("workers") for change in changes)
    again = resolve("nano", "math", given["--method"], 3, given["--model"], changes)
    assert hashed(again.model_dump(mode="json")) == hashed(run.model_dump(mode="json"))
    # An adapter of rank 0 is no part of the fingerprint, but the tier's own has rank 8.
    run = resolve("smol", "webshop", "grpo", 0, overrides=["lora.rank=0"])
    assert train_command(run).endswith("--env webshop --method grpo --seed 0 --set lora.rank=0")
    # A protocol sets many values; it is named once, in the row or as a change.
    for method, overrides in (
        ("zero_shot", ["protocol=react", "evaluation.tasks=3"]),
        ("zero_shot@protocol=react", ["evaluation.tasks=3"]),
    ):
        run = resolve("smol", "alfworld", method, 0, overrides=overrides)
        words = shlex.split(train_command(run))
        changes = [value for option, value in pairwise(words) if option == "--set"]
        assert changes == overrides
        assert resolve("smol", "alfworld", method, 0, overrides=changes) == run
    usual = resolve("nano", "alfworld", "grpo", 0)
    assert train_command(usual) == "r3l train --tier nano --env alfworld --method grpo --seed 0"
