"""Sentences of the pages that state a result outside a made table have the numbers of results/stored."""

import csv
import json
from types import SimpleNamespace

import pytest
from docs.pages import ROOT

from r3l.files.paths import STORED
from r3l.stats.intervals import t_interval

RESULTS = "docs/results.md"
METHODS = "docs/methods.md"
# Each sentence with the claims, environments and models whose numbers it states. A field {0.effect} is of the
# first of them; {0.low} and {0.high} are the ends of its 95 % interval.
SENTENCES = [
    (
        "README.md",
        "by {0.effect:.2f} ({0.low:.2f} to {0.high:.2f}) on ScienceWorld and {1.effect:.2f} ({1.low:.2f} to "
        "{1.high:.2f}) on WebShop",
        ("trains_1_20_grpo scienceworld", "trains_1_20_grpo webshop"),
    ),
    (
        "README.md",
        "by {0.effect:.2f} ({0.low:.2f} to {0.high:.2f}) on WebShop and {1.effect:.2f} ({1.low:.2f} to "
        "{1.high:.2f}) on mathematics, three seeds each",
        ("stale_weights_grpo webshop", "stale_weights_grpo math"),
    ),
    (
        RESULTS,
        "on WebShop ({0.effect:+.3f}, {0.low:.3f} to {0.high:.3f}) and mathematics ({1.effect:+.3f}, "
        "{1.low:.3f} to {1.high:.3f}), three seeds each",
        ("stale_weights_grpo webshop", "stale_weights_grpo math"),
    ),
    (
        RESULTS,
        "ScienceWorld ({0.effect:+.3f}, {0.low:.3f} to {0.high:.3f}) and WebShop ({1.effect:+.3f}, "
        "{1.low:.3f} to {1.high:.3f}). On test tasks",
        ("trains_1_20_grpo scienceworld", "trains_1_20_grpo webshop"),
    ),
    (
        RESULTS,
        "ScienceWorld {0.effect:+.3f} ({0.low:.3f} to {0.high:.3f}), WebShop {1.effect:+.3f} "
        "({1.low:.3f} to {1.high:.3f}, uncorrected)",
        ("learns_early_grpo scienceworld", "learns_early_grpo webshop"),
    ),
    (
        RESULTS,
        "ScienceWorld's lead over GRPO is shown: {0.effect:+.3f}, read",
        ("learns_tokens_10_grpo scienceworld",),
    ),
    (RESULTS, "R3L loses less than GRPO (by {0.effect:.3f})", ("stale_weights_less webshop",)),
    (
        RESULTS,
        "in six of seven comparisons at equal learning rates, by {0.effect:.2f} to {1.effect:.2f}",
        ("amplification_training math", "amplification_training webshop"),
    ),
    (
        RESULTS,
        "R3L ends behind ({0.effect:+.3f}; predicted: within 0.03)",
        ("final_r3l@amplify_until=0.3334 webshop",),
    ),
    (RESULTS, "four times as heavy: {0.effect:+.3f}", ("early_r3l@sft_coef=4 webshop",)),
    (
        METHODS,
        "on ScienceWorld and WebShop ({0.effect:+.3f} and {1.effect:+.3f}, equivalent)",
        ("adaptive_early scienceworld", "adaptive_early webshop"),
    ),
    (
        METHODS,
        "on ScienceWorld ({0.effect:+.3f}, {0.low:.3f} to {0.high:.3f}), WebShop ({1.effect:+.3f}, "
        "{1.low:.3f} to {1.high:.3f}), mathematics ({2.effect:+.3f}, {2.low:.3f} to {2.high:.3f}) and ALFWorld",
        ("adaptive_final scienceworld", "adaptive_final webshop", "adaptive_final math"),
    ),
    (
        METHODS,
        "it ends behind** ({0.effect:+.3f}, {0.low:.3f} to {0.high:.3f}; predicted: within 0.06)",
        ("adaptive_final alfworld alfworld-1.5m-hints",),
    ),
]


@pytest.fixture(scope="module")
def claims():
    """The rows of results/stored/claims_nano.csv, which a test of its own makes again from the runs."""

    def number(text):
        try:
            return float(text)
        except ValueError:
            return text

    with (STORED / "claims_nano.csv").open(newline="") as file:
        return [
            SimpleNamespace(**{key: number(value) for key, value in row.items()})
            for row in csv.DictReader(file)
        ]


@pytest.mark.parametrize(("page", "sentence", "rows"), SENTENCES)
def test_a_sentence_states_the_stored_numbers(claims, page, sentence, rows):
    found = []
    for row in rows:
        words = row.split()
        found.append(next(c for c in claims if [c.id, c.env, c.model][: len(words)] == words))
    stated = sentence.format(*found)
    assert stated in (ROOT / page).read_text(encoding="utf-8")


def test_adaptive_r3l_on_alfworld_has_the_stored_numbers():
    """Paired differences that are no row of the claims: from the other checkpoint, and to R3L."""

    def success(part, model, method, seed):
        run = STORED / part / "nano" / "alfworld" / f"alfworld-1.5m-{model}" / method / f"seed{seed}"
        return json.loads((run / "evaluation.json").read_text())["groups"]["all"]["success"]

    def stated(model, *others):
        ours = "r3l_adaptive@train.lr=0.0003"
        found = t_interval(
            [
                success("curves", model, ours, seed) - success(*other, seed)
                for seed, other in enumerate(others)
            ]
        )
        return f"({found.mean:+.3f}, {found.low:.3f} to {found.high:.3f})"

    page = (ROOT / METHODS).read_text(encoding="utf-8")
    from_plain = stated("plain", *[("", "plain", "grpo")] * 10)
    assert f"ALFWorld from `alfworld-1.5m-plain` {from_plain}." in page
    r3l = "r3l@train.lr=0.0003"
    to_r3l = stated("hints", *[("hint_gap", "hints", r3l)] * 5, *[("curves", "hints", r3l)] * 5)
    assert f"not shown to end above R3L there {to_r3l}." in page
