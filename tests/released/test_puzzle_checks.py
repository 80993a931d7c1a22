"""The generated answers to puzzles are of every kind; that the release judges them alike is for `r3l released`."""

import json
from itertools import islice

import pytest

from r3l.released.checks.puzzles import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_cases_are_right_and_wrong_with_and_without_an_answer(check):
    cases = list(islice(check.cases(), 300))
    assert cases == list(islice(check.cases(), 300)) == json.loads(json.dumps(cases))
    verdicts = {json.dumps(check.ours(case)) for case in cases}
    if check.name == "countdown":
        assert verdicts == {"true", "false"}
    elif check.name == "binary_matrix, no literals":  # only the release accepts one
        assert verdicts == {'{"correct": false, "format": true}', '{"correct": false, "format": false}'}
    else:
        assert len(verdicts) == 3  # there is none that is right without an answer
