"""Hyperparameters are declared once; the printed options follow."""

import pytest

from r3l.config import names, resolve
from r3l.config.options import method_options, run_options
from r3l.core.errors import ConfigError


def test_options_come_with_their_limits_defaults_and_methods():
    (alpha,) = [option for option in method_options() if option.option == "alpha"]
    assert (alpha.values, alpha.default, alpha.used_by) == ("float > 0", "3.0", "r3l")
    sizes = {option.used_by: option.default for option in method_options() if option.option == "group_size"}
    assert sizes.pop("reflect_grpo") == "4" and set(sizes.values()) == {"8"}
    (steps,) = [option for option in run_options() if option.option == "train.sync_interval"]
    assert steps.values == "int >= 1" and "released code" in steps.source
    assert {name for option in method_options() for name in option.used_by.split(", ")} <= set(names("methods"))


def numeric(options):
    """The keys that take a number and no truth value."""
    kinds = {row.option: {kind.split()[0] for kind in row.values.split(" | ")} for row in options}
    return sorted(key for key, words in kinds.items() if words & {"int", "float"} and "bool" not in words)


def test_true_is_no_number_for_any_option():
    of_run = [key for key in numeric(run_options()) if not key.startswith("cluster.")]
    of_r3l = [f"method_settings.{row.option}" for row in method_options() if "r3l" in row.used_by.split(", ")]
    of_r3l = [key for key in of_r3l if key.partition(".")[2] in numeric(method_options())]
    assert "train.lr" in of_run and "train.save_every" in of_run and "method_settings.alpha" in of_r3l
    for key in [*of_run, *of_r3l]:
        with pytest.raises(ConfigError, match="true and false are no numbers"):
            resolve("nano", "alfworld", "r3l", 0, overrides=[f"{key}=true"])
