"""Draws are addressed by task id, so two tasks with one id would train the same rollouts twice."""

import pytest
from r3l.envs.base.one_file import OneFileEnvironment

from r3l.core.errors import DataError
from r3l.core.task import Task, check_unique


def named(*ids):
    return [Task(id_, "toy", "train", payload={"number": k}) for k, id_ in enumerate(ids)]


@pytest.mark.parametrize("ids", [(), ("a",), ("a", "A", "a ", "á"), tuple(f"t{k}" for k in range(2000))])
def test_ids_of_their_own_are_fine(ids):
    check_unique(named(*ids), "toy/train")


@pytest.mark.parametrize(
    ("ids", "shown"),
    [
        (("a", "a"), "'a' (2 times)"),
        (("a", "b", "c", "b", "b"), "'b' (3 times)"),  # with other payloads, apart from one another
        (("", ""), "'' (2 times)"),
        (("a\nb", "a\nb"), r"'a\nb' (2 times)"),
        (tuple("aabbccddee"), "'c' (2 times) and 2 more"),
    ],
)
def test_repeated_ids_are_refused(ids, shown):
    with pytest.raises(DataError) as refusal:
        check_unique(named(*ids), "toy/train")
    assert (
        shown in str(refusal.value) and "toy/train" in str(refusal.value) and "\n" not in str(refusal.value)
    )


class Careless(OneFileEnvironment):
    """A user's environment that truncates its numbers, so that ids repeat."""

    name = domain = "careless"
    rules = "None."

    def problem(self, rng):
        return {}

    def make_engine(self, *_):
        raise NotImplementedError

    def task(self, split, number):
        return Task(f"careless-{number // 10}", self.name, split)


def test_an_environment_that_repeats_them_is_refused():
    with pytest.raises(DataError, match=r"careless/test has duplicate task ids: .*'careless-0' \(10 times\)"):
        Careless().tasks("test")
