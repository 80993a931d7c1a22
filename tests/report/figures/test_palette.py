"""One method, one look: distinct, also for colour-blind readers, and never dependent on what else is drawn."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from r3l.config import names, variant
from r3l.report.figures.palette import ABLATIONS, METHODS, look, tint
from r3l.workflow import plan

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
BLIND = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
WHITE = np.array([0.9505, 1.0, 1.089])


def lab(colour, matrix):
    """CIE L*a*b* of a colour as a reader with ``matrix`` sees it."""
    srgb = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    f = np.cbrt(np.clip(XYZ @ np.clip(np.array(matrix) @ linear, 0, 1) / WHITE, 1e-6, None))
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("matrix", [np.eye(3), *BLIND.values()], ids=["normal", *BLIND])
def test_methods_of_table_1_differ_in_line_or_clearly_in_colour(matrix):
    for one, other in combinations(map(look, plan.tables()["table1"].methods), 2):
        apart = np.linalg.norm(lab(one.colour, matrix) - lab(other.colour, matrix))
        assert one.dash != other.dash or apart > 10, (one, other, apart)


def test_every_configured_method_has_a_look_of_its_own():
    assert set(names("methods")) == METHODS.keys() | ABLATIONS.keys()
    looks = [look(name) for name in names("methods")]
    assert len({style.colour for style in looks}) == len(looks)
    assert len({style.marker for style in METHODS.values()}) == len(METHODS)
    assert len({(style.dash, style.marker) for style in map(look, ABLATIONS)}) == len(ABLATIONS)


def test_an_ablation_is_a_tint_of_its_method():
    assert look("grpo_amplified").colour == "#00446B"  # 0.6 of #0072B2: (0, 68.4, 106.8)


def test_variants_differ_from_their_method_and_from_each_other():
    looks = [look(name) for name in ("r3l", *(m for m in plan.tables()["alpha"].methods if m != "r3l"))]
    assert len({(seen.colour, seen.dash) for seen in looks}) == len(looks) == 5


def test_own_methods_keep_their_look_in_every_process():
    assert (look("shortest").colour, look("shortest").marker) == ("#622BAB", ">")
    assert look("shortest") != look("shorter")


@given(st.integers(0, 0xFFFFFF), st.floats(-1, 1))
def test_a_tint_lies_between_black_the_colour_and_white(number, amount):
    colour = f"#{number:06X}"
    parts = [int(tint(colour, amount)[k : k + 2], 16) for k in (1, 3, 5)]
    before = [int(colour[k : k + 2], 16) for k in (1, 3, 5)]
    assert all(b <= p if amount > 0 else p <= b for p, b in zip(parts, before, strict=True))
    assert tint(colour, 0) == colour and tint(colour, -1) == "#000000" and tint(colour, 1) == "#FFFFFF"


@pytest.mark.parametrize("name", ["table_rltf", "table1", "feedback"])
def test_rows_with_another_teacher_are_told_apart(name):
    """They keep their method's marker; colours make the difference."""
    looks = {row: look(row) for row in plan.tables()[name].methods}
    assert len(set(looks.values())) == len(looks)
    assert all(looks[row].marker == look(variant(row).method).marker for row in looks)
