"""Single definitions are taken out of a file without running what else it holds."""

import pytest

from r3l.core.errors import DataError
from r3l.released.definitions import execute

SOURCE = """
import math
import engine_that_nobody_has
from engine_that_nobody_has import registry
from . import sibling

FACTOR = 3
print("never run")


@registry.register("area")
class Area(registry.Base):
    def __init__(self, radius: registry.Radius) -> None:
        super().__init__()
        self.radius = radius

    @staticmethod
    def unit():
        return "m2"

    def value(self) -> registry.Number:
        return FACTOR * self.radius**2


class Half(Area):
    def value(self):
        return super().value() / 2


def root(x: registry.Number) -> registry.Number:
    return math.sqrt(x)
"""


def taken(*names):
    namespace = {}
    execute(SOURCE, "area.py", names, namespace)
    return namespace


def test_classes_constants_and_functions_come_without_what_they_register_or_annotate(capsys):
    released = taken("FACTOR", "Area", "root")
    assert released["Area"](2).value() == 12 and released["Area"].unit() == "m2"
    assert released["root"](9) == 3
    assert capsys.readouterr().out == ""


def test_a_base_class_stays_where_it_is_taken_too():
    assert taken("FACTOR", "Area", "Half")["Half"](2).value() == 6


def test_a_method_comes_as_a_function():
    released = taken("FACTOR", "Area.value")
    assert "Area" not in released
    assert released["value"](type("Thing", (), {"radius": 1})) == 3


def test_a_definition_that_is_not_there_is_named():
    with pytest.raises(DataError, match="area.py of the clone defines no circle"):
        taken("circle")
    with pytest.raises(DataError, match="area.py of the clone has no method Area.centre"):
        taken("Area.centre")
