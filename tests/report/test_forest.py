"""The picture of the claims: every effect is on its axis, and no panel is nearly empty."""

from dataclasses import replace

from report.test_claims import OF, of_seeds

from r3l.report.claims import ProbeTest
from r3l.report.claims_table import command, in_short
from r3l.report.figures import forest, style


def test_effects_are_on_the_axis_and_few_of_them_share_a_panel(tmp_path, monkeypatch):
    """Effects reach 1.21 (0.75 and half its interval of 0.92); eight claims in one environment, one in another."""
    measured = of_seeds(tmp_path, [1, 2, 1, 2])
    rows = [
        replace(row, claim=row.claim.model_copy(update={"id": f"{row.claim.id}{k}"}))
        for k in range(3)
        for row in measured
    ]
    rows.append(replace(rows[0], label="GSM8K, a model"))
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, out, name: drawn.append(figure) or [out])
    forest.draw(rows, OF, tmp_path / "claims.png")
    column, below = drawn[0].axes
    assert column.get_title(loc="left") == rows[0].label and len(column.get_yticks()) == 9
    assert [text.get_text() for text in below.get_yticklabels()] == ["R3L is ahead: GSM8K, a model"]
    for ax in (column, below):
        low, high = ax.get_xlim()
        ends = [float(x) for line in ax.lines for x in line.get_xdata()]
        assert low < min(ends) and max(ends) < high
    assert max(float(x) for line in column.lines for x in line.get_xdata()) > 1.2


def test_an_mde_is_not_printed_as_zero_and_a_command_says_what_it_shows(tmp_path):
    ahead, hard, growth = of_seeds(tmp_path, [0, 2, 0, 0])
    assert ahead.verdict == "inconclusive"
    per_tokens = {"training": None, "probe": ProbeTest(measure="guided_per_1000")}
    in_other_unit = replace(ahead, claim=growth.claim.model_copy(update=per_tokens))
    for mde, text in ((0.248, "(0.2)"), (0.03, "(0.03)"), (12.4, "(12)")):
        row = replace(in_other_unit, comparison=replace(ahead.comparison, mde_adjusted=mde))
        assert in_short(row).endswith(text), in_short(row)
    assert command(ahead.claim) == "r3l compare r3l --against grpo --env ENV --offline"
    assert command(hard.claim).startswith("runs: ") and command(growth.claim) == "runs: r3l train"
