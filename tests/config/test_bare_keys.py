"""A key without a dot is the method's setting if the method declares it, else a key of the run."""

import pytest

from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.files.paths import ROOT


def changed(*overrides, method="r3l"):
    return resolve("nano", "alfworld", method, 0, overrides=overrides)


def test_a_setting_of_the_method_comes_first():
    run = changed("alpha=5")
    assert run.method_settings["alpha"] == 5 and run.lora.alpha == 32
    assert run == changed("method_settings.alpha=5")
    assert run.method_settings == changed(method="r3l@alpha=5").method_settings
    assert changed("lora.alpha=64").lora.alpha == 64


def test_else_it_is_a_key_of_the_run_in_a_row_as_on_the_command_line():
    assert changed("threads=1").threads == changed(method="r3l@threads=1").threads == 1
    assert changed("samples=turn", "env_settings.options.turn=response").samples == "turn"


def test_each_change_counts():
    run = changed("retries=2", "train={steps: 3, tasks_per_step: 2}", method="r3l@alpha=5,train.lr=0.001")
    assert (run.method_settings["retries"], run.method_settings["alpha"]) == (2, 5)
    assert (run.train.steps, run.train.tasks_per_step, run.train.lr) == (3, 2, 0.001)
    assert run.method == "r3l@alpha=5,train.lr=0.001"


@pytest.mark.parametrize(
    ("method", "change", "words"),
    [
        (
            "grpo",
            "alpha=5",
            "unknown key 'alpha' (did you mean 'lora.alpha'?): method 'grpo' has no such setting",
        ),
        ("grpo@alpha=5", "workers=0", "unknown key 'alpha' (did you mean 'lora.alpha'?)"),
        (
            "r3l",
            "temperature=1",
            "(did you mean 'sampling.temperature' or 'evaluation.temperature' or 'judge.temp",
        ),
        ("r3l", "alpah=5", "unknown key 'alpah' (did you mean 'alpha'?)"),
        ("r3l", "thread=2", "unknown key 'thread' (did you mean 'threads'?)"),
        ("r3l@seed=1", "workers=0", "key 'seed' is not for a change"),
        ("r3l", "served=0a", "key 'served' is not for a change"),
        ("r3l", "method_settings=5", "key 'method_settings' has value 5"),
        ("r3l", "alpha=${threads}", "alpha"),
        ("r3l", "env_settings.options={}", "env_settings.options={} would change nothing"),
        ("r3l@train={}", "workers=0", "train={} would change nothing"),
        ("r3l", "train={optimizer: { }, steps: 3}", "train.optimizer={} would change nothing"),
    ],
)
def test_what_is_neither_is_an_error_that_names_the_key(method, change, words):
    with pytest.raises(ConfigError) as error:
        changed(change, method=method)
    assert words in str(error.value)


def test_a_key_of_both_is_ambiguous(tmp_path, monkeypatch):
    code = (ROOT / "examples/shortest.py").read_text()
    (tmp_path / "ambiguous.py").write_text(
        code.replace("    group_size", "    threads: float = 0.1\n    group_size")
    )
    config = "method: ambiguous\nlabel: Ambiguous\ncode: 'ambiguous:Shortest'\nsources: {}\n"
    (tmp_path / "ambiguous.yaml").write_text(config)
    monkeypatch.setenv("R3L_METHODS", str(tmp_path))
    for overrides, method in ((["threads=2"], "ambiguous"), ([], "ambiguous@threads=2")):
        with pytest.raises(
            ConfigError, match="'threads' is ambiguous.*write method_settings.threads=2.*configs/tiers"
        ):
            changed(*overrides, method=method)
    run = changed("method_settings.threads=0.5", method="ambiguous")
    assert run.method_settings["threads"] == 0.5 and run.threads == changed(method="grpo").threads


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("train.steps=1:30", "key 'train.steps' is '1:30': 1:30 is read in base 60"),
        ("train.steps=010", "key 'train.steps' is '010': 010 is read in base 8"),
        ("train={steps: 3, save_minutes: 1:30}", "1:30 is read in base 60; write a decimal number"),
        ("evaluation.curve=[010, 020]", "is read in base 8"),
    ],
)
def test_numbers_that_yaml_reads_in_another_base_are_refused(change, words):
    """train.steps=010 trained eight steps."""
    with pytest.raises(ConfigError) as refused:
        changed(change)
    assert words in str(refused.value)


def test_an_empty_mapping_is_refused_where_another_change_names_its_keys():
    with pytest.raises(ConfigError, match="train={} would change nothing"):
        changed("train={}", "train.steps=3")
