"""The table of the map (r3l.report.probe_map): comparisons, the rule, the registered tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from r3l.report.map_rule import DIFFERENCES, UNSEEN, checked, lines, name_of, predicted_before
from r3l.report.probe_map import AT_EQUAL_TOKENS, UNREFLECTED, Comparison
from r3l.report.table import Cell, Column, Table, table
from r3l.stats.comparison import adjusted
from r3l.stats.intervals import CONFIDENCE
from r3l.stats.prediction import Line, gives_line, slope_within

# The registered tests: each, over all comparisons of UNSEEN, that the slope over guided minus fresh is not 0.
TESTED = {
    "early_test": "early held-out success, minus GRPO",
    "final": "final test success, minus GRPO",
    UNREFLECTED: "early held-out success, minus R3L without reflection",
}
REGISTERED_CELLS = 18


def map_table(rows: Sequence[Comparison], known: Sequence[Comparison] = ()) -> Table:
    """The table of comparisons of R3L with GRPO, one row each, the largest guided minus fresh first.

    Notes give the lines by which a probe predicts R3L minus GRPO (:func:`r3l.report.map_rule.lines`), and
    how often these, and the line through the comparisons ``known`` before the registered ones ran, predict
    the sign and the interval of a comparison that they were not fitted to.
    """
    notes = []
    for name, line in lines(rows).items():
        low, high = line.slope_bounds
        text = (
            f"{DIFFERENCES[name].capitalize()}: R3L minus GRPO = {line.intercept:+.3f} {line.slope:+.3f} x "
            f"(guided minus fresh), slope {low:.2f} to {high:.2f}."
        )
        tests = {
            "Each predicted by the others": checked(rows, name),
            "Predicted before they were run": predicted_before(rows, name, known),
        }
        for words, (signs, inside, count) in tests.items():
            if count:
                text += (
                    f" {words}: {signs} of {count} signs right, {inside} of {count} inside the 95 % interval."
                )
        notes.append(text)
    columns = [
        Column("comparison", name_of),
        Column("model", drop=1),
        Column("seeds", form="d", drop=2),
        Column("rate", lambda row: Cell(f"{row['learning_rate']:g}"), drop=2),
        Column("guided - fresh", lambda row: _interval(row, "guided_minus_fresh"), right=True, no_wrap=True),
        Column("base", lambda row: row["base_success"], ".2f", drop=2),
        *(Column(name, partial(_interval, name=name), right=True, no_wrap=True) for name in DIFFERENCES),
    ]
    return table(
        "The map: R3L minus GRPO at equal learning rates",
        columns,
        sorted(rows, key=lambda row: -row["guided_minus_fresh"]),
        "guided - fresh: a guided retry against another attempt after a failure; base: success. Both are of "
        "the base checkpoint (r3l probe). early: training success, first third of updates; final: test "
        "success. 95 % intervals.",
        *notes,
        *registered_tests(rows),
        *equal_token_slopes(rows),
    )


def _interval(row: Comparison, name: str) -> Cell | None:
    value, low, high = (row.get(f"{name}{part}") for part in ("", "_low", "_high"))
    if value is None:
        return None
    bounds = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    return Cell(f"{value:+.2f}{bounds}", value)


def registered_tests(rows: Sequence[Comparison]) -> list[str]:
    """A sentence for each of TESTED: its slope over ``guided_minus_fresh``, and the verdict.

    The slope is fitted to the comparisons of part UNSEEN, which were predicted before they ran, and Holm
    corrects the p-values over the tests. Before REGISTERED_CELLS (18) comparisons have ended, the sentence
    says so instead of the verdict. [] if the comparisons of a test give no line (too few, or all at one x).
    """
    unseen = [row for row in rows if row["part"] == UNSEEN]
    ended = {name: [row for row in unseen if row.get(name) is not None] for name in TESTED}
    if not all(gives_line([row["guided_minus_fresh"] for row in known]) for known in ended.values()):
        return []
    # Holm's correction needs the p-values of all tests before a sentence can be written.
    fitted = {
        name: Line.through([row["guided_minus_fresh"] for row in known], [row[name] for row in known])
        for name, known in ended.items()
    }
    corrected = adjusted([line.p_value for line in fitted.values()], "holm")
    sentences = []
    for (name, line), p_value in zip(fitted.items(), corrected, strict=True):
        known = ended[name]
        low, high = line.slope_bounds
        within = slope_within(
            [row["guided_minus_fresh"] for row in known],
            [row[name] for row in known],
            [row["env"] for row in known],
        )
        if line.count < REGISTERED_CELLS:
            verdict = f"no verdict before {REGISTERED_CELLS} comparisons have ended"
        else:
            verdict = "shown" if p_value < 1 - CONFIDENCE else "not shown"
        sentences.append(
            f"Registered test, {TESTED[name]}: slope {line.slope:+.2f} ({low:.2f} to {high:.2f}) over "
            f"{line.count} comparisons, {within:+.2f} within environments, p = {p_value:.3g} (Holm): "
            f"{verdict}."
        )
    return sentences


def equal_token_slopes(rows: Sequence[Comparison]) -> list[str]:
    """A sentence for each of AT_EQUAL_TOKENS: mean and slope of R3L minus GRPO at equal generated tokens.

    The slope is over guided minus fresh. Only comparisons of part UNSEEN that have scores at these tokens
    count; if they are too few for a line, or all at one x, there is no sentence.
    """
    sentences = []
    for name, update in AT_EQUAL_TOKENS.items():
        known = [row for row in rows if row["part"] == UNSEEN and row.get(name) is not None]
        x_N = [row["guided_minus_fresh"] for row in known]
        if gives_line(x_N):
            line = Line.through(x_N, [row[name] for row in known])
            low, high = line.slope_bounds
            mean = np.mean([row[name] for row in known])
            sentences.append(
                f"Exploratory, held-out success at equal generated tokens ({update} updates of the cheaper "
                f"method), minus GRPO: mean {mean:+.2f}, slope {line.slope:+.2f} ({low:.2f} to {high:.2f}) "
                f"over {line.count} comparisons."
            )
    return sentences
