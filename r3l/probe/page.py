"""docs/regime.md, from the stored cards: ``python -m r3l.probe.page`` writes it and its picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from r3l.core.markdown import pipe_table
from r3l.files.json_files import read_json
from r3l.files.paths import ROOT
from r3l.files.writing import write_text_atomic
from r3l.probe.card import CARDS, SECTIONS, lines, reasons, shown_paper, shown_value, targets, verdict
from r3l.probe.picture import draw

Card = Mapping[str, Any]
PAGE = ROOT / "docs" / "regime.md"
BEFORE = CARDS / "before"
PICTURE = CARDS / "probe.png"
ORDER = ("alfworld", "scienceworld", "webshop", "math")  # then the others, by name

INTRODUCTION = """# Regime cards

A regime is what training starts from: a start model, task sets and limits. `r3l probe ENV` measures it without
training, so that it can be chosen before any method is compared. The targets are in `configs/probe_targets.yaml`, the
cards in `results/stored/probe/`; `python -m r3l.probe.page` writes this page and its picture from them.

```
r3l probe alfworld                                              # the start model, 8 attempts at each of 128 tasks
r3l probe webshop --model results/models/candidate --out a.json # another model
```

Tasks are those of the task set `validation`, on which nothing is trained, taught or tested (`--task-set` names another;
a test task set is refused). Attempts are at the temperature of training.

- **Attempts** are base rollouts. *Unusable*: the last response held no action, an impossible one, or was cut off. The
  *scripted expert* makes no errors and reads what the policy reads: what it does not solve is out of reach.
- **Diagnosis** is of failed attempts. The environment's critic *names a cause* unless it finds no wrong action and
  time simply ran out. Agreement is that of the metrics `pivot/oracle_agrees` and `pivot/oracle_near`
  ([metrics](metrics.md)).
- **Retries** are of failed attempts whose reflection names a pivot. All retries of an attempt are sampled from the same
  noise, so *guided minus unguided* is what the hint does. A *fresh attempt* is the next one at the same task. Tokens
  are those generated for a retry, its reflection included.
- **The critic's reflection** in place of the model's shows what a right pivot and a right hint are worth.
- **Actions**: a hint is followed where the action that it begins with is possible and the retry takes it first. Where
  responses are answers, not actions, this is not applicable.

Intervals are 95 % percentiles over tasks drawn with replacement, all attempts of a task together, since attempts at one
task are alike (`r3l/probe/measures.py` has the sources); of shares that are 0 or 1 in every task Wilson's over tasks.
"""
NOW = """## The start models

A target that is missed is in bold.

"""
EARLIER = """## Before

*Before* are the start models of the first generation ([results](results.md#the-first-generation)), measured before any
start model, task set or limit was changed to meet the targets. Those of WebShop and the puzzles were taught when there
was no validation task set, so they have seen tasks of it. Seconds are those of a busy machine. A target that is missed
is in bold.

"""
PAPER = """## The paper's numbers

Where it has the same measure: the range over its models and training steps (`results/stored/published/`). Its models
were in training, ours have not begun.

"""


def cards(folder: Path) -> list[Card]:
    """The cards in a folder, the agentic environments first."""
    found = {path.stem: read_json(path) for path in folder.glob("*.json")}
    names = [name for name in ORDER if name in found] + sorted(found.keys() - set(ORDER))
    return [found[name] for name in names]


def page() -> str:
    """docs/regime.md."""
    now, before = cards(CARDS), cards(BEFORE)
    parts = [INTRODUCTION]
    if now or before:
        parts.append("![The measures of every environment](../results/stored/probe/probe.png)\n")
    parts += [NOW + _tables(now, explained=True)] if now else []
    parts += [EARLIER + _tables(before)] if before else []
    parts += [_paper([*now, *before])] if now or before else []
    return "\n".join(parts)


def _tables(of: Sequence[Card], explained: bool = False) -> str:
    """What was measured, then the measures; a target that is missed in bold. ``explained``: with the reasons."""
    rows = [
        ["start model", "", *(f"`{c['model']['name']}` {(c['model']['weights_sha256'] or '?')[:12]}" for c in of)],
        ["tasks, attempts", "", *(f"{c['tasks']}, {c['attempts']:,}" for c in of)],
        ["halves", "", *(", ".join(c["halves"]) for c in of)],
        ["seconds of an attempt", "", *(f"{c['seconds']['an_attempt']:.3f}" for c in of)],
    ]
    for title, labels in sections(of):
        rows.append([f"*{title}*", "", *("" for _ in of)])
        rows += [[label, str(targets().get(key, "")), *(_cell(key, card) for card in of)] for key, label in labels]
    missed = [line for card in of for line in _missed(card, explained)]
    return pipe_table(["measure", "target", *(card["label"] for card in of)], rows) + "\n\n" + "\n".join(missed) + "\n"


def sections(of: Sequence[Card]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Those of the cards, each measure that any of them has."""
    merged: dict[str, dict[str, str]] = {}
    for card in of:
        for title, labels in lines(card):
            merged.setdefault(title, {}).update(labels)
    return [(title, list(labels.items())) for title, labels in merged.items()]


def _cell(key: str, card: Card) -> str:
    measure = card["measures"].get(key)
    if measure is None:
        return ""
    text = shown_value(key, measure)
    return f"**{text}**" if verdict(measure) == "missed" else text


def _missed(card: Card, explained: bool) -> list[str]:
    """A line, and where ``explained`` one for each missed target."""
    labels = {key: label for of_section in SECTIONS.values() for key, label in of_section.items()}
    of_card = card["measures"]
    judged = {key: of_card[key]["met"] for key in labels if key in targets() and key in of_card}
    judged = {key: met for key, met in judged.items() if met is not None}
    missing = [key for key, met in judged.items() if not met]
    counted = f"- {card['label']}: {len(judged) - len(missing)} of {len(judged)} targets are met"
    if not explained:
        return [f"{counted}; missed: {'; '.join(labels[key] for key in missing) or 'none'}."]
    why = reasons(card["env"])
    lines_of = [f"  - {labels[key]}: {why.get(key, 'configs/probe_targets.yaml does not say why')}" for key in missing]
    return [f"{counted}{'; missed:' if missing else '.'}", *lines_of]


def _paper(of: Sequence[Card]) -> str:
    by_label = {card["label"]: card for card in of if card["paper"]}
    labels = {key: label for of_section in SECTIONS.values() for key, label in of_section.items()}
    keys = [key for key in labels if any(key in card["paper"] for card in by_label.values())]
    rows = [[labels[key], *(shown_paper(key, card) for card in by_label.values())] for key in keys]
    return PAPER + pipe_table(["measure", *by_label], rows) + "\n"


def write() -> None:
    """The page and its picture."""
    write_text_atomic(PAGE, page())
    now, before = cards(CARDS), cards(BEFORE)
    if now or before:
        draw(now, before, PICTURE)


if __name__ == "__main__":
    write()
