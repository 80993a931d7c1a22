"""Errors in one line, and on their way between processes."""

import importlib
import pickle
import re

import pytest

from r3l.core.errors import R3LError, first_line
from r3l.endpoint.context_limits import ContextRoom
from r3l.endpoint.options import DialogTooLongError, UnfinishedError
from r3l.files.paths import ROOT


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError("no route\nto host"), "no route"),
        (TimeoutError(), "TimeoutError"),
        (ValueError("\nsecond"), "ValueError"),
    ],
)
def test_the_first_line_of_an_error_is_never_empty(error, line):
    assert first_line(error) == line


def all_errors():
    """R3LError and all classes of it, in r3l and its environments."""
    for folder, above in (("r3l", ""), ("envs", "r3l.")):
        for path in (ROOT / folder).rglob("*.py"):
            if re.search(r"^class \w+\(.*(Error|Lost)\b", path.read_text(), re.M):
                importlib.import_module(above + ".".join(path.relative_to(ROOT).with_suffix("").parts))
    found = [R3LError]
    for error in found:
        found += [kind for kind in error.__subclasses__() if kind.__module__.startswith("r3l.")]
    return found


def test_every_error_survives_the_way_to_another_process():
    errors = [kind("what is wrong") for kind in all_errors()]
    errors += [DialogTooLongError("too long", ContextRoom(limit=9)), UnfinishedError("cut", "content_filter")]
    assert len(errors) > 15
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))
