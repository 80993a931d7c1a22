"""The bench of puzzles: the words of every bench, and rates by name."""

import pytest
from r3l.envs.puzzles.engine import PUZZLES

from r3l.bench.engines import HEADLINE
from r3l.bench.puzzles import run
from r3l.core.errors import ConfigError


@pytest.mark.parametrize("name", PUZZLES)
def test_the_report_has_the_headline_and_the_rates(name):
    report = run(f"{name}_nano/test", tasks=4, seed=1)
    assert tuple(report)[: len(HEADLINE)] == HEADLINE
    assert (report["tasks"], report["right"]) == (4, 4)  # of a right and a wrong answer each
    assert set(report["items_per_s"]) == {"generation", "verification", "critique", "erring_attempt"}
    assert all(rate > 0 for rate in report["items_per_s"].values())


def test_no_problems_is_an_error():
    with pytest.raises(ConfigError, match="--tasks is 0"):
        run("countdown_nano/test", tasks=0)
