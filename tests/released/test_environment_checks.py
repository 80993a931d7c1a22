"""The generated responses and episodes are of every kind; that the release agrees is for `r3l released`."""

from itertools import islice

import pytest

from r3l.released.checks import endings, responses


@pytest.mark.parametrize("check", responses.CHECKS, ids=lambda check: check.name)
def test_responses_with_and_without_an_action(check):
    cases = list(islice(check.cases(), 500))
    assert cases == list(islice(check.cases(), 500))
    actions = [check.ours(case) for case in cases]
    assert 100 < actions.count(None) < 400 and "" in actions and len(set(actions)) > 10


@pytest.mark.parametrize("check", endings.CHECKS, ids=lambda check: check.name)
def test_episodes_of_many_lengths_and_rewards(check, tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    count = 8 if check.name == "scienceworld" else 40
    found = [check.ours(case) for case in islice(check.cases(), count)]
    assert {turns for ending in found for _, turns in ending.values()} >= {2, 3, 4}
    assert len({ending["base"][0] for ending in found}) > 1
    assert any(ending["base"] != ending["retry"] for ending in found)
