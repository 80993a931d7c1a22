"""How a method looks, in every figure: its colour, its line and its marker never depend on what else is drawn.

Colours are Okabe and Ito's and Paul Tol's, safe for colour-blind readers; since twelve cannot be told apart by colour
alone, a family shares a line style and each method has a marker. What derives from a method is a tint of it.
"""

from __future__ import annotations

import colorsys
import hashlib
from dataclasses import dataclass
from typing import Any

from r3l.config import variant

Dash = str | tuple[float, tuple[float, ...]]
SOLID: Dash = "-"
DASHED: Dash = (0, (4, 1.5))
DOTTED: Dash = (0, (1, 1.2))
DASHDOT: Dash = (0, (5, 1.2, 1, 1.2))


@dataclass(frozen=True)
class Look:
    """``colour`` as #RRGGBB; ``dash`` and ``marker`` in matplotlib's notation."""

    colour: str
    dash: Dash
    marker: str

    def line(self) -> dict[str, Any]:
        """Keywords of a line."""
        return {"color": self.colour, "linestyle": self.dash}

    def point(self, size: float = 4.5) -> dict[str, Any]:
        """Keywords of a marker without a line; ``size`` in points."""
        return {"color": self.colour, "marker": self.marker, "markersize": size, "linestyle": "none"}


METHODS = {
    # The reference, and methods that learn from rewards alone: solid lines; those that the paper lacks: dotted.
    "zero_shot": Look("#7F7F7F", SOLID, "d"),
    "warm_start": Look("#A6761D", DOTTED, "X"),
    "raft": Look("#000000", SOLID, "s"),
    "opmd": Look("#56B4E9", SOLID, "v"),
    "grpo": Look("#0072B2", SOLID, "o"),
    "dapo": Look("#CC79A7", SOLID, "^"),
    "gspo": Look("#E69F00", SOLID, "P"),
    "rloo": Look("#44AA99", DOTTED, "8"),
    "reinforce_pp": Look("#AA4499", DOTTED, "H"),
    "gigpo": Look("#999933", DOTTED, "x"),
    # Methods that learn from text feedback: dashed lines; RLTF's: dash and dot.
    "reflect_grpo": Look("#B8A900", DASHED, "<"),
    "critique_grpo": Look("#009E73", DASHED, ">"),
    "rltf_grpo": Look("#661100", DASHDOT, "1"),
    "rltf_sft": Look("#117733", DASHDOT, "h"),
    "rltf_fm": Look("#332288", DASHDOT, "*"),
    "rltf_sd": Look("#882255", DASHDOT, "p"),
    "r3l": Look("#D55E00", SOLID, "D"),
}
ABLATIONS = {  # name: (what it derives from, tint from -1: black to 1: white, line, marker)
    "r3l_no_reflection": ("r3l", -0.62, DASHED, "s"),
    "r3l_no_amplification": ("r3l", 0.44, DASHDOT, "^"),
    "r3l_no_credit": ("r3l", -0.35, DOTTED, "v"),
    "r3l_from_start": ("r3l", 0.25, DASHED, "<"),
    "r3l_no_guidance": ("r3l", -0.50, DASHDOT, "o"),
    "r3l_random_pivot": ("r3l", 0.52, DOTTED, "H"),
    "r3l_oracle_pivot": ("r3l", -0.20, DASHED, "*"),
    "r3l_kl": ("r3l", 0.35, DASHDOT, "P"),
    "r3l_is": ("r3l", 0.14, DOTTED, "h"),
    "grpo_amplified": ("grpo", -0.40, DASHED, "8"),
}
DASHES, MARKERS = (DASHED, DASHDOT, DOTTED), "sv^<>oP8hp*d"


def look(method: str) -> Look:
    """The look of a method: the registry's; of a variant (``r3l@alpha=5``) a tint of its method's.

    With another teacher it keeps its method's line and marker, since several methods have the same. A method that the
    registry does not know takes hue, line and marker from a hash of its name.
    """
    name, changes = variant(method)
    plain = _known(name) or _own(name)
    if not changes:
        return plain
    place, dash, marker = _hashed(",".join(changes))
    colour = tint(plain.colour, (0.2 + 0.4 * place) * (1 if dash == DASHDOT else -1))
    taught = all(change.startswith("feedback=") for change in changes)
    return Look(colour, plain.dash, plain.marker) if taught else Look(colour, dash, marker)


def _known(name: str) -> Look | None:
    if name in ABLATIONS:
        base, amount, dash, marker = ABLATIONS[name]
        return Look(tint(METHODS[base].colour, amount), dash, marker)
    return METHODS.get(name)


def _own(name: str) -> Look:
    hue, dash, marker = _hashed(name)
    return Look(_hex(colorsys.hls_to_rgb(hue, 0.42, 0.6)), dash, marker)


def _hashed(text: str) -> tuple[float, Dash, str]:
    """A number in [0, 1), a line and a marker."""
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:4], "big") / 2**32, DASHES[digest[4] % len(DASHES)], MARKERS[digest[5] % len(MARKERS)]


def tint(colour: str, amount: float) -> str:
    """``colour`` mixed with white (``amount`` > 0) or black (< 0), by that share."""
    target = 1.0 if amount > 0 else 0.0
    parts = (int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5))
    return _hex([part + (target - part) * abs(amount) for part in parts])


def _hex(rgb: Any) -> str:
    return "#" + "".join(f"{round(255 * part):02X}" for part in rgb)
