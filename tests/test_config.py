"""Configuration: what is wrong is named with file, key, value and fix, before any work starts."""

import json

import pytest
import yaml

from r3l import config
from r3l.config import CONFIGS, MethodConfig, TierConfig, build_method, load, names, resolve, validate
from r3l.core.errors import ConfigError
from r3l.schemas import schemas


def test_committed_schemas_are_those_of_the_models():
    for stem, schema in schemas().items():
        found = json.loads((CONFIGS / "schemas" / f"{stem}.json").read_text())
        assert found == schema, f"run: python -m r3l.schemas ({stem})"


@pytest.mark.parametrize("kind", ["tiers", "envs", "methods"])
def test_every_value_names_its_source(kind):
    def leaves(content, prefix=""):
        for key, value in content.items():
            if isinstance(value, dict):
                yield from leaves(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}"

    naming = {"tier", "env", "method", "label", "code", "engine", "model", "prompts"}
    for name in names(kind):
        content = yaml.safe_load((CONFIGS / kind / f"{name}.yaml").read_text())
        sources = content.pop("sources")
        assert set(leaves(content)) - naming == set(sources), name


@pytest.mark.parametrize("method", names("methods"))
def test_every_method_resolves_and_builds(method):
    run = resolve("nano", "alfworld", method, 0)
    assert run.cell == f"nano/alfworld/nano/{method}"
    assert build_method(run).describe().keys() >= run.method_settings.keys()


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["train.step=3"], "unknown key 'step' (did you mean 'steps'?)"),
        (["train.steps=many"], "key 'train.steps' has value 'many'"),
        (["train.lr=-1"], "key 'train.lr' has value -1"),
        (["nonsense"], "must look like key=value"),
        (["method_settings.alpa=2"], "unknown key 'alpa' (did you mean 'alpha'?)"),
        (["method_settings.group_size=3"], "key 'group_size' has value 3"),
    ],
)
def test_bad_overrides(overrides, words):
    with pytest.raises(ConfigError) as error:
        resolve("nano", "alfworld", "r3l", 0, overrides=overrides)
    assert words in str(error.value)


def test_unknown_names_list_what_there_is():
    with pytest.raises(ConfigError, match=r"no method 'gropo'; known: .*grpo.*did you mean 'grpo'"):
        resolve("nano", "alfworld", "gropo", 0)
    with pytest.raises(ConfigError, match="no tier 'huge'"):
        resolve("huge", "alfworld", "grpo", 0)


def test_unknown_and_missing_keys_of_a_file_are_named():
    content = yaml.safe_load((CONFIGS / "tiers" / "nano.yaml").read_text())
    content["train"]["learning_rate"] = 1
    del content["sampling"]["max_tokens"]
    with pytest.raises(ConfigError) as error:
        validate(TierConfig, content, "here.yaml")
    assert "here.yaml" in str(error.value)
    assert "unknown key 'train.learning_rate'" in str(error.value)
    assert "key 'sampling.max_tokens' is missing" in str(error.value)


def test_a_broken_yaml_file_is_named(tmp_path, monkeypatch):
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "odd.yaml").write_text("method: [")
    monkeypatch.setattr(config, "CONFIGS", tmp_path)
    with pytest.raises(ConfigError, match=r"odd\.yaml: not valid YAML"):
        load("methods", "odd", MethodConfig)


def test_the_fingerprint_sees_what_matters_and_nothing_else():
    def fingerprint(*overrides, seed=0, model=None):
        return resolve("nano", "alfworld", "r3l", seed, model, list(overrides)).fingerprint()

    base = fingerprint()
    assert base == fingerprint("workers=7") == fingerprint("train.save_every=1")
    changed = [fingerprint("train.lr=1e-3"), fingerprint(seed=1), fingerprint("method_settings.alpha=2")]
    changed += [fingerprint("threads=7"), fingerprint(model="other")]
    assert len({base, *changed}) == len(changed) + 1
