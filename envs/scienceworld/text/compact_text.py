"""Short forms of ScienceWorld's observations for small models: names without the sentences around them.

Removed are the agent itself, the air, doors (every place can be reached by teleport), states such as "which
is off" and stages such as "in the adult stage". The order stays.
"""

from __future__ import annotations

import re

LIMIT = 360  # characters of one observation; a full kitchen has 300

_PLACE = re.compile(
    r"This (?:room|outside location) is called the (?P<name>[^.]+)\. (?:In it, you see|Here you see):",
)
_INVENTORY = "In your inventory, you see:"
_DOORS = "You also see:"
# Each pattern takes time linear in the length of any text: its runs are bounded, or can start at one
# position only.
_INSIDE = re.compile(r"\. (?:On|In) the [^.:]+ is: (.*)")
_RULES = (
    (re.compile(r"\b[Ii]n the adult stage\b|\bwith an? \w+ height\b"), ""),
    (re.compile(r", which is [^,.)]+|, currently reading a temperature of [^,)]*"), ""),
    (re.compile(r"\.? ?The [^.]{0,100} door is (?:closed|open)\.?"), ""),
    # "a table. On the table is: a jar, a cup." -> "a table (a jar, a cup)"; twice: a pillow on a mattress
    # on a bed
    (_INSIDE, r" (\1)"),
    (_INSIDE, r" (\1)"),
    (re.compile(r"\bcontaining "), ""),
    (re.compile(r"\b(?:an?|the|A|substance called) (?=\w)"), ""),
    (re.compile(r"\bsubstance called "), ""),
    (re.compile(r" ?\((?:nothing)?\.?\)"), ""),
    (re.compile(r"(?<!\.)\.+(?=\)|$)"), ""),
)
_HIDDEN = ("agent", "air")


def compact(text: str) -> str:
    """Shorten an observation to one line of at most LIMIT characters; the rest is cut off (" ...").

    Of places and inventories only the names of things are left; any other text keeps its words.
    """
    place = _PLACE.match(text)
    if place:
        seen = text[place.end() :].split(_DOORS)[0]
        short = f"{place['name']}: {_items(seen)}"
    elif text.startswith(_INVENTORY):
        short = f"you carry: {_items(text.removeprefix(_INVENTORY)) or 'nothing'}"
    else:
        short = text
    short = _flat(short)
    if len(short) <= LIMIT:
        return short
    return short[: LIMIT - 4].rpartition(" ")[0] + " ..."


def compact_first(text: str) -> str:
    """Shorten a first observation to one line: its first line, the task, and the rest by :func:`compact`."""
    task, _, seen = text.partition("\n")
    return f"{_flat(task)} {compact(seen)}"


def _items(lines: str) -> str:
    """The names in a list with one item per line."""
    names: list[str] = []
    for line in lines.splitlines():
        if not line.strip():
            continue
        name = line.strip()
        for pattern, replacement in _RULES:
            name = pattern.sub(replacement, name)
        names.append(re.sub(r" (?=[,)])", "", _flat(name)))
    return ", ".join(name for name in names if name not in _HIDDEN)


def _flat(text: str) -> str:
    return " ".join(text.split())
