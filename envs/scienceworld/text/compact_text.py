"""ScienceWorld's observations in few words, for small models: the same names, without the sentences around them.

Left out are the agent itself, the air, the doors (every place can be reached by teleport), states such as "which is
off" and stages such as "in the adult stage". Nothing is reordered.
"""

from __future__ import annotations

import re

LIMIT = 360  # characters of one observation; a well-filled kitchen has 300

_PLACE = re.compile(r"This (?:room|outside location) is called the (?P<name>[^.]+)\. (?:In it, you see|Here you see):")
_INVENTORY = "In your inventory, you see:"
_DOORS = "You also see:"
# Each takes a time linear in a text's length, whatever that is: bounded, or begun at one place of a run.
_INSIDE = re.compile(r"\. (?:On|In) the [^.:]+ is: (.*)")
_RULES = (
    (re.compile(r"\b[Ii]n the adult stage\b|\bwith an? \w+ height\b"), ""),
    (re.compile(r", which is [^,.)]+|, currently reading a temperature of [^,)]*"), ""),
    (re.compile(r"\.? ?The [^.]{0,100} door is (?:closed|open)\.?"), ""),
    # "a table. On the table is: a jar, a cup." -> "a table (a jar, a cup)"; twice: a pillow on a mattress on a bed
    (_INSIDE, r" (\1)"),
    (_INSIDE, r" (\1)"),
    (re.compile(r"\bcontaining "), ""),
    (re.compile(r"\b(?:an?|the|A|substance called) (?=\w)"), ""),
    (re.compile(r"\bsubstance called "), ""),
    (re.compile(r" ?\((?:nothing)?\.?\)"), ""),
    (re.compile(r"(?<!\.)\.+(?=\)|$)"), ""),
)
_HIDDEN = ("agent", "air")


def brief(text: str) -> str:
    """``text`` on one line in few words, at most LIMIT characters."""
    place = _PLACE.match(text)
    if place:
        seen = text[place.end() :].split(_DOORS)[0]
        short = f"{place['name']}: {_items(seen)}"
    elif text.startswith(_INVENTORY):
        short = f"you carry: {_items(text.removeprefix(_INVENTORY)) or 'nothing'}"
    else:
        short = text
    return _cut(_flat(short))


def brief_first(text: str) -> str:
    """The same for a first observation: its first line, the task, stays whole."""
    task, _, seen = text.partition("\n")
    return f"{_flat(task)} {brief(seen)}"


def _items(lines: str) -> str:
    names = [_item(line.strip()) for line in lines.splitlines() if line.strip()]
    return ", ".join(name for name in names if name not in _HIDDEN)


def _item(line: str) -> str:
    for pattern, replacement in _RULES:
        line = pattern.sub(replacement, line)
    return re.sub(r" (?=[,)])", "", _flat(line))


def _flat(text: str) -> str:
    return " ".join(text.split())


def _cut(text: str) -> str:
    return text if len(text) <= LIMIT else text[: LIMIT - 4].rpartition(" ")[0] + " ..."
