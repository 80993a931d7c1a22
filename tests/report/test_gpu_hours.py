"""Expected GPU-hours, by hand from the published seconds of a step."""

import re

import pytest
from rich.console import Console

from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.report import gpu_hours
from r3l.report.html.page import to_html
from r3l.report.table import to_latex, to_markdown
from r3l.workflow import plan


def cost(env, method, model="qwen2.5-1.5b", steps=100):
    (estimate,) = gpu_hours.costs([resolve("paper", env, method, 0, model, [f"train.steps={steps}"])])
    return estimate


def test_a_published_cell_is_its_seconds_on_16_gpus():
    estimate = cost("alfworld", "grpo")
    assert estimate.seconds == pytest.approx(406.2 + 87.6) and estimate.basis == ""
    assert estimate.gpu_hours == pytest.approx(493.8 * 100 * 16 / 3600)
    assert cost("dapo", "r3l", "qwen3-4b").seconds == pytest.approx(773.5 + 225.8)


@pytest.mark.parametrize(
    ("env", "method", "model", "seconds", "basis"),
    [
        ("webshop", "grpo", "qwen2.5-1.5b", 493.8, "as ALFWorld"),
        ("alfworld", "r3l@alpha=5", "qwen2.5-1.5b", 372.4 + 103.8, "as R3L"),
        ("alfworld", "rltf_sd", "qwen2.5-1.5b", 2 * 493.8, "as GRPO x 2 rollouts"),
        (
            "alfworld",
            "grpo",
            "qwen2.5-7b",
            493.8 * 7615616512 / 1543714304,
            "Qwen2.5-1.5B-Instruct x 4.9 by parameters",
        ),
    ],
)
def test_what_is_estimated_says_from_what(env, method, model, seconds, basis):
    estimate = cost(env, method, model)
    assert (estimate.seconds, estimate.basis) == (pytest.approx(seconds), basis)


def test_a_grid_is_the_sum_of_its_runs():
    config = plan.load(
        plan.workflow_content("paper") | {"envs": ["alfworld"], "model": "qwen2.5-1.5b", "grid": "core"}
    )
    costs = gpu_hours.costs(plan.runs(config, plan.tables()["table1"]).values())
    assert len(costs) == 9  # zero-shot, GRPO, R3L; three seeds
    by_hand = 3 * 740 * 16 / 3600 * (493.8 + 476.2)
    assert sum(one.gpu_hours for one in costs) == pytest.approx(by_hand)
    assert gpu_hours.summary(costs, 3).startswith(f"9 runs (3 seeds a cell): {by_hand:,.0f} H20-hours")


def test_every_form_of_the_table_ends_with_the_totals(capsys):
    """Three seeds of R3L at 476.2 s a step, 740 steps on 16 GPUs: 1,566 hours each, 4,699 in all."""
    runs = [resolve("paper", "alfworld", "r3l", seed, "qwen2.5-1.5b") for seed in range(3)]
    table = gpu_hours.cost_table(gpu_hours.costs(runs), 3, "Cost")
    Console(width=100).print(table)
    forms = (capsys.readouterr().out, to_markdown(table), to_latex(table), str(to_html(table)))
    for form in forms:
        row = re.search("all seeds of all.{0,40}?4,699", form, re.DOTALL)
        assert row and form.index("1,566") < row.start() < form.index("3 runs (3 seeds a cell)")


def test_a_model_of_unknown_size_is_an_error():
    with pytest.raises(ConfigError, match="size of model 'Some/Other' is not known"):
        cost("alfworld", "grpo", "Some/Other")
