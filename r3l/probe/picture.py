"""The picture of the regime cards: how attempts end, success by half, right and wrong pivots, what a hint does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from r3l.core.environment import StopReason
from r3l.probe.card import targets
from r3l.report.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Card = Mapping[str, Any]
STOPS = {  # colour by what an end is: solved, played out, unusable, other
    StopReason.SUCCESS: "#117733",
    StopReason.MAX_TURNS: "#88CCEE",
    StopReason.DONE: "#4477AA",
    StopReason.REPETITION: "#DDCC77",
    StopReason.INADMISSIBLE: "#882255",
    StopReason.FORMAT: "#CC6677",
    StopReason.TRUNCATED: "#AA4499",
    StopReason.CONTEXT: "#999999",
}
PANELS = (  # title, (measure, label, colour)
    (
        "success of attempts (grey: target)",
        (("success_easy", "easy half", "#4477AA"), ("success_hard", "hard half", "#CC6677")),
    ),
    (
        "success of guided retries (grey: paper)",
        (("retry_right", "right pivot", "#117733"), ("retry_wrong", "wrong pivot", "#882255")),
    ),
    (
        "success of retries, by hint",
        (
            ("retry_success", "own hint", "#4477AA"),
            ("unguided_success", "same pivot, no hint", "#999999"),
            ("critic_guided", "critic's pivot and hint", "#DDAA33"),
        ),
    ),
)


def draw(now: Sequence[Card], before: Sequence[Card], out: Path) -> None:
    """Filled: ``now``; hollow, to the left: ``before``. Bars: 95 % intervals; grey: the paper's range, a target."""
    import matplotlib

    labels = list(dict.fromkeys(card["label"] for card in (*now, *before)))
    with matplotlib.rc_context(style.RC):
        figure, axes = style.subplots(2, 2, style.PAGE, 4.6)
        _ends(axes[0][0], labels, now, before)
        for ax, (title, series) in zip(axes.flat[1:], PANELS, strict=True):
            _rates(ax, title, series, labels, now, before)
        style.save(figure, out)


def _places(labels: Sequence[str], cards: Sequence[Card], both: bool, side: float) -> dict[str, float]:
    """Where a card stands on the x axis."""
    return {card["label"]: labels.index(card["label"]) + (side if both else 0) for card in cards}


def _ends(ax: Axes, labels: Sequence[str], now: Sequence[Card], before: Sequence[Card]) -> None:
    both = bool(now and before)
    for cards, side, alpha in ((before, -0.2, 0.55 if both else 1.0), (now, 0.2, 1.0)):
        places = _places(labels, cards, both, side)
        bottoms = dict.fromkeys(places, 0.0)
        for stop, colour in STOPS.items():
            heights = {c["label"]: c["measures"][f"stop_{stop}"]["value"] or 0.0 for c in cards}
            ax.bar(
                [places[label] for label in heights],
                list(heights.values()),
                width=0.36 if both else 0.6,
                bottom=[bottoms[label] for label in heights],
                color=colour,
                alpha=alpha,
                label=stop.value if cards and (cards is now or not now) and any(heights.values()) else None,
            )
            bottoms = {label: bottoms[label] + height for label, height in heights.items()}
    _axis(ax, labels, "how attempts end" + (" (left: before)" if both else ""))
    ax.set_ylim(0, 1)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.0)


def _rates(
    ax: Axes,
    title: str,
    series: Sequence[tuple[str, str, str]],
    labels: Sequence[str],
    now: Sequence[Card],
    before: Sequence[Card],
) -> None:
    width = 0.8 / len(series)
    for number, (key, name, colour) in enumerate(series):
        middle = (number - (len(series) - 1) / 2) * width
        for card in now or before:
            _range(ax, labels.index(card["label"]) + middle, width, _reference(key, card))
        for cards, shift, filled in ((before, -0.06 if now else 0.0, not now), (now, 0.06 if before else 0.0, True)):
            for card in cards:
                _point(ax, labels.index(card["label"]) + middle + shift, card["measures"].get(key), colour, filled)
        ax.plot([], [], "o", color=colour, markersize=4, label=name)
    _axis(ax, labels, title)
    ax.set_ylim(0, 1)
    if now and before:
        ax.plot([], [], "o", color=style.GREY, markersize=4, markerfacecolor="white", label="hollow: before")
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), handlelength=1.0)


def _reference(key: str, card: Card) -> tuple[float, float] | None:
    """The range to be in: a target's, else the paper's."""
    target = targets().get(key)
    if target and target.at_least is not None and target.at_most is not None:
        return target.at_least, target.at_most
    values = [row["value"] for row in card["paper"].get(key, [])]
    return (min(values), max(values)) if values else None


def _range(ax: Axes, x: float, width: float, reference: tuple[float, float] | None) -> None:
    if reference:
        low, high = reference
        ax.bar([x], [max(high - low, 0.01)], width=0.9 * width, bottom=[low], color="#CCCCCC", zorder=0)


def _point(ax: Axes, x: float, measure: Mapping[str, Any] | None, colour: str, filled: bool) -> None:
    if measure is None or measure["value"] is None:
        return
    if measure["low"] is not None and measure["high"] is not None:
        ax.plot([x, x], [measure["low"], measure["high"]], color=colour, linewidth=1.1)
    ax.plot([x], [measure["value"]], "o", color=colour, markersize=4, markerfacecolor=colour if filled else "white")


def _axis(ax: Axes, labels: Sequence[str], title: str) -> None:
    ax.set_title(title)
    ax.set_xticks(range(len(labels)), list(labels), rotation=20, ha="right")
    ax.set_xlim(-0.5, len(labels) - 0.5)
    ax.grid(visible=False, axis="x")
