"""docs/methods.md: a row for every method, and what the registry knows is not written by hand."""

from __future__ import annotations

import re

import pytest
from docs.pages import DOCS, text
from report.runs import write_run

from docs.site.method_rows import COLUMNS, filled_methods, verdicts_against
from r3l.core.errors import DataError
from r3l.report.reading import read_runs
from r3l.runs.run_paths import find_runs

PAGE = text(DOCS / "methods.md")
BODY = re.search(r"<!-- stored: methods -->\n(.*?)<!-- end -->", PAGE, re.DOTALL)[1]


def rows(body, runs):
    header, _, *lines = [line.strip("|").split("|") for line in filled_methods(body, runs).splitlines()]
    assert tuple(header) == COLUMNS
    return {line[0].strip("`"): dict(zip(header, line, strict=True)) for line in lines}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """R3L in three environments, once at another rate, once under the environment's feedback; GRPO is ahead
    in the first.
    """
    root = tmp_path_factory.mktemp("runs")
    for seed, more in enumerate((0, 0, 0, 0, 1)):
        write_run(root, "grpo", seed, [1, 1], [1, more])
        write_run(root, "r3l", seed, [1, 1], [0, 0], rate=1e-4)
    write_run(root, "r3l@feedback=environment", 0, [1], [1], env="webshop")
    write_run(root, "r3l@train.lr=0.0003", 0, [1], [1], env="scienceworld")
    write_run(root, "r3l@alpha=5", 0, [1], [1], env="math")
    return read_runs(find_runs(root))


def test_what_registry_and_stored_runs_say_is_in_the_row(runs):
    found = rows(BODY, runs)
    generated = ("hint", "feedback by", "rollouts", "stored", "differences")
    assert {
        name: [found[name][column] for column in generated] for name in ("r3l", "grpo", "sdar", "rltf_sd")
    } == {
        "r3l": ["reflection", "self", "8/8", "3", "[code](../r3l/algorithm.py)"],
        "grpo": ["", "", "8/8", "1", "[code](../baselines/grpo.py)"],
        "sdar": [
            *("solved attempt, else feedback", "environment", "8/8", "none"),
            "[9 points](../baselines/teacher_gated.py)",
        ],
        "rltf_sd": ["critique", "self", "16/8", "none", "[code](../baselines/rltf.py)"],
    }
    assert found["r3l_no_reflection"]["hint"] == found["r3l_no_reflection"]["feedback by"] == ""
    assert found["r3l_no_guidance"]["hint"] == "" and found["r3l_no_guidance"]["feedback by"] == "self"


def test_what_is_written_by_hand_stays_and_a_method_without_a_row_is_named(runs):
    changed = BODY.replace("|N|`r - m`|`-A l`|", "|N|mine|`-A l`|")
    assert changed != BODY and rows(changed, runs)["opmd"]["advantage A"] == "mine"
    without = "\n".join(line for line in BODY.splitlines() if not line.startswith("|`sdpo`|"))
    with pytest.raises(
        DataError, match="no row for sdpo; add one with the columns what is played, advantage A"
    ):
        filled_methods(without, runs)


def test_only_what_is_shown_is_listed_and_unequal_rates_are_named(runs):
    """GRPO minus R3L, of four tasks: 1, 1, 1, 1, 2; p = 0.004. The other environments have a seed each."""
    assert verdicts_against(runs, "grpo") == (
        "*Ahead* of GRPO: none. *Behind* GRPO: R3L (ALFWorld -0.300 at unequal rates)."
    )
