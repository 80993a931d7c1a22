"""Configuration: what is wrong is named with file, key, value and fix, before any work starts."""

import pytest
import yaml
from start_models import START_MODEL

from r3l.config import (
    PROFILES,
    EnvConfig,
    TierConfig,
    build_method,
    load,
    load_method,
    names,
    resolve,
)
from r3l.config.files import find_class
from r3l.config.method import Scope, settings_in
from r3l.core.errors import ConfigError
from r3l.files.paths import CONFIGS
from r3l.workflow import plan


@pytest.mark.parametrize("method", names("methods"))
def test_every_method_resolves_and_builds(method):
    run = resolve("nano", "alfworld", method, 0)
    assert run.cell == f"nano/alfworld/{START_MODEL}/{method}"
    assert build_method(run).describe() == run.method_settings
    assert run.method_settings.keys() == find_class("methods", run.method_code).Settings.model_fields.keys()


@pytest.mark.parametrize("profile", PROFILES)
def test_an_extension_changes_only_what_it_names(profile):
    """An ablation is undone by no tier and no profile of the method that it extends."""
    scope = Scope("nano", profile)
    r3l = settings_in("r3l", scope)
    assert settings_in("r3l_no_credit", scope) == r3l | {"credit": []}
    assert settings_in("r3l_no_guidance", scope) == r3l | {"guidance": "none"}
    assert load_method("r3l_no_credit").code == load_method("r3l").code
    losses = {"paper": "token_mean", "fair": "token_mean", "released_code": "microbatch_released"}
    assert settings_in("grpo_amplified", scope)["loss_agg"] == losses[profile]


HERE = [  # tier/env, method, model: what the release has there, under both profiles or under released_code alone
    ("nano/math", "dapo", None, {"overlong_max": 360, "overlong_cache": 180, "group_size": 1}),
    ("paper/scienceworld", "gspo", "qwen3-4b", {"group_size": 8, "kl": "k2", "kl_coef": 0.001}),
    ("paper/alfworld", "raft", None, {"group_size": 1, "keep_reward": 1.0}),
    ("paper/alfworld", "raft", "qwen2.5-7b", {"group_size": 8}),
    ("paper/scienceworld", "raft", None, {"keep_reward": 0.01}),
    ("paper/scienceworld", "raft", "qwen3-4b", {"keep_reward": 1.0}),
    ("paper/alfworld", "reflect_grpo", None, {"retry": "released_noop"}),
    ("paper/math500", "reflect_grpo", None, {"retry": "works"}),
    ("paper/alfworld", "r3l", None, {"credit_rule": "suffix", "train_on": "distilled", "kl": "k2"}),
    (
        "paper/alfworld",
        "r3l",
        None,
        {"replay": "until_refused", "credit_from": "restart"},
    ),  # no action is refused
    ("paper/webshop", "r3l", None, {"replay": "until_refused", "credit_from": "reflected"}),
    ("paper/webshop", "r3l", "qwen3-4b", {"replay": "until_refused", "credit_from": "restart"}),
    ("paper/webshop", "r3l@profile=paper", None, {"replay": "whole", "credit_from": "restart"}),
    (
        "paper/dapo",
        "r3l",
        None,
        {"pivot": "start", "credit_from": "reflected", "sft_trigger": "solved_improve"},
    ),
    (
        "paper/alfworld",
        "r3l",
        "qwen3-4b",
        {"credit_rule": "released_inverted", "train_on": "guided", "kl": "none"},
    ),
    ("paper/dapo", "r3l", "qwen3-4b", {"pivot": "start", "credit_from": "restart", "train_on": "guided"}),
    ("paper/dapo", "r3l_random_pivot", None, {"pivot": "random"}),
]


@pytest.mark.parametrize(("place", "method", "model", "expected"), HERE)
def test_settings_of_an_environment_a_model_or_of_turns_hold_there_alone(place, method, model, expected):
    name = method if "@" in method else f"{method}@profile=released_code"
    settings = resolve(*place.split("/"), name, 0, model).method_settings
    assert {key: settings[key] for key in expected} == expected


def test_a_condition_on_what_does_not_exist_is_an_error_that_names_it(tmp_path, monkeypatch):
    entry = "where:\n  - {environments: [maths], settings: {group_size: 2}, source: s}\n"
    (tmp_path / "mine.yaml").write_text(f"method: mine\nlabel: M\nextends: grpo\n{entry}sources: {{}}\n")
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    with pytest.raises(
        ConfigError, match=r"mine.yaml: .*environments.*there is no environment 'maths'.*did you mean 'math'"
    ):
        settings_in("mine", Scope("nano"))


@pytest.mark.parametrize("rate", ["-1", "0", ".nan", ".inf", "0.5", "true", "'a'"])
def test_a_rate_that_cannot_be_a_tuned_one_is_refused(tmp_path, monkeypatch, rate):
    (tmp_path / "mine.yaml").write_text(
        f"method: mine\nlabel: M\nextends: grpo\nrates: {{nano: {{math: {rate}}}}}\nsources: {{rates.nano: s}}\n"
    )
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    with pytest.raises(ConfigError, match=r"mine.yaml: .*rates"):
        resolve("nano", "math", "mine", 0)


@pytest.mark.parametrize("changed", ["overlong_max=179", "overlong_cache=361"])
def test_a_penalty_longer_than_the_longest_rollout_is_refused(changed):
    """At nano the penalty grows over 180 tokens up to 360; over more it would punish an empty rollout."""
    with pytest.raises(ConfigError, match=r"overlong_cache.*set it to at most"):
        resolve("nano", "webshop", f"dapo@{changed}", 0)


def test_precedence_is_settings_profile_tier_and_the_users_changes():
    def setting(method, key, *overrides):
        return resolve("nano", "alfworld", method, 0, overrides=list(overrides)).method_settings[key]

    assert setting("r3l", "amplify_rule") == "paper"
    assert setting("r3l@profile=released_code", "amplify_rule") == "released_code"
    assert (
        setting("r3l@profile=released_code", "guidance_place") == "user_turn"
    )  # the tier's; released: system_message
    assert setting("r3l@profile=released_code,amplify_rule=none", "amplify_rule") == "none"
    assert setting("r3l@profile=released_code", "amplify_rule", "method_settings.amplify_rule=none") == "none"


def test_variants_are_methods_of_their_own():
    plain, other = (
        resolve("nano", "alfworld", "r3l", 0),
        resolve("nano", "alfworld", "r3l@alpha=5,train.steps=7", 0),
    )
    assert other.cell == f"{plain.cell}@alpha=5,train.steps=7"
    assert (other.method_settings["alpha"], other.train.steps) == (5, 7)
    assert other.method_label == "R3L (alpha=5, train.steps=7)" and other.fingerprint() != plain.fingerprint()
    assert resolve("nano", "alfworld", "dapo@profile=released_code", 0).train.lr_warmup_steps == 20


def test_a_method_without_code_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "mine.yaml").write_text("{method: mine, label: Mine, sources: {}}")
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    with pytest.raises(ConfigError, match="mine.yaml: key 'code' is missing"):
        resolve("nano", "alfworld", "mine", 0)


@pytest.mark.parametrize("table", plan.tables().values(), ids=lambda t: t.table)
def test_every_row_of_every_table_resolves(table):
    where = ("smol", table.envs[0]) if table.table == "zero_shot" else ("nano", "alfworld")
    rows = [resolve(*where, name, 0) for name in table.methods]
    assert table.baseline in (table.methods if table.kind == "scores" else [""])
    assert set(table.core) <= set(table.methods)
    assert len({run.fingerprint() for run in rows}) == len(rows)


@pytest.mark.parametrize(
    ("method", "override", "words"),
    [
        ("r3l@alpa=5", None, "unknown key 'alpa' (did you mean 'alpha'?)"),
        (
            "r3l@profile=papper",
            None,
            "no profile 'papper'; known: fair, paper, released_code (did you mean 'paper'?)",
        ),
        ("r3l@train.step=5", None, "unknown key 'train.step' (did you mean 'steps'?)"),
        ("r3l", "train.step=3", "unknown key 'train.step' (did you mean 'steps'?)"),
        ("r3l", "max_turns=3", "unknown key 'max_turns' (did you mean 'env_settings.max_turns'?)"),
        ("r3l", "lr=3", "unknown key 'lr' (did you mean 'train.lr'?)"),
        (
            "r3l",
            "env_settings.max_tokens=3",
            "'env_settings.max_tokens' (did you mean 'sampling.max_tokens'?)",
        ),
        ("r3l", "train.steps=many", "key 'train.steps' has value 'many'"),
        ("r3l", "train.lr=true", "true and false are not numbers"),
        ("r3l", "nonsense", "must look like key=value"),
        ("r3l", "method_settings.alpa=2", "unknown key 'alpa' (did you mean 'alpha'?)"),
    ],
)
def test_bad_variants_and_overrides(method, override, words):
    with pytest.raises(ConfigError) as error:
        resolve("nano", "alfworld", method, 0, overrides=[override] if override else [])
    assert words in str(error.value)


def test_a_profile_also_sets_the_engine_and_options_are_checked_before_any_work():
    assert resolve("nano", "webshop", "r3l", 0).env_settings.options == {}
    released = {"response_format": "released"}
    webshop = resolve("nano", "webshop", "r3l@profile=released_code", 0)
    assert webshop.env_settings.options == {"penalty": 0.1, "refused": "released", **released}
    science = resolve("nano", "scienceworld", "grpo@profile=released_code", 0)
    assert science.env_settings.options == {"reward": "max_delta_released", **released}
    house = resolve("nano", "alfworld", "grpo@profile=released_code", 0)
    assert house.env_settings.options == {"list_places": True, **released}
    run = resolve("nano", "webshop", "r3l", 0, overrides=["env_settings.options.penalty=0.2"])
    assert run.env_settings.options == {"penalty": 0.2}
    for override in ("env_settings.options.penalty=-1", "env_settings.options.fine=1"):
        with pytest.raises(
            ConfigError, match="webshop, env_settings.options: .*(-1: .* to 0|'fine' .known: .*penalty)"
        ):
            resolve("nano", "webshop", "r3l", 0, overrides=[override])


def test_a_line_of_a_response_is_no_sample_of_its_own():
    with pytest.raises(ConfigError, match="turns=whole"):
        resolve("nano", "math", "grpo", 0, overrides=["samples=turn"])
    whole = resolve("nano", "math", "grpo", 0, overrides=["samples=turn", "env_settings.options.turns=whole"])
    assert whole.samples == "turn" and resolve("nano", "alfworld", "grpo", 0, overrides=["samples=turn"])


def test_an_environment_changes_the_tier_and_a_variant_changes_it_again():
    tier = load("tiers", "nano", TierConfig).train.tasks_per_step
    of_math = load("envs", "math", EnvConfig).tiers["nano"].set["train.tasks_per_step"]
    assert resolve("nano", "alfworld", "grpo", 0).train.tasks_per_step == tier != of_math
    assert resolve("nano", "math", "grpo", 0).train.tasks_per_step == of_math
    assert resolve("nano", "math", "grpo@train.tasks_per_step=6", 0).train.tasks_per_step == 6


NAMING = {"tier", "env", "environment", "method", "table", "title", "label", "code", "extends", "engine"}
NAMING |= {"model", "prompts", "baseline", "kind", "where"}


@pytest.mark.parametrize("kind", ["tiers", "envs", "models", "methods", "tables"])
def test_every_value_names_its_source(kind):
    def leaves(content, prefix=""):
        for key, value in content.items():
            if isinstance(value, dict):
                yield from leaves(value, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}"

    def sourced(leaf, sources):
        parts = leaf.split(".")
        return any(".".join(parts[:n]) in sources for n in range(1, len(parts) + 1))

    for name in names(kind):
        content = yaml.safe_load((CONFIGS / kind / f"{name}.yaml").read_text())
        sources = content.pop("sources")
        settings = set(leaves(content)) - NAMING
        assert {leaf for leaf in settings if not sourced(leaf, sources)} == set(), name
        assert all(any(f"{leaf}.".startswith(f"{key}.") for leaf in settings) for key in sources), name
