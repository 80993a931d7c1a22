"""Task sets: committed, hashed, disjoint, solvable, and an error if they differ."""

import pytest
from r3l.envs.webshop.engine.catalogue import build
from r3l.envs.webshop.engine.synthetic import sources
from r3l.envs.webshop.task_sets.tasks import TASK_SETS

from r3l.core.errors import DataError


@pytest.mark.slow
def test_the_originals_splits(tmp_path, monkeypatch):
    monkeypatch.delenv("R3L_WEBSHOP", raising=False)
    assert TASK_SETS.committed_hash("official/test") == "unbuilt"  # so that a run can be planned
    with pytest.raises(DataError, match=r"R3L_WEBSHOP is not set.*r3l data catalogue"):
        TASK_SETS.tasks("official/test")
    build(sources(1400, 1), tmp_path / "shop", "original")  # 4,200 goals
    monkeypatch.setenv("R3L_WEBSHOP", str(tmp_path / "shop"))
    numbers = {
        name: [t.payload["goal"] for t in TASK_SETS.tasks(name)]
        for name in ("official/test", "official/dev", "official/train", "r3l/train", "r3l/test")
    }
    assert numbers["official/test"] == list(range(500)) and numbers["official/dev"] == list(range(500, 1500))
    assert numbers["official/train"] == list(range(1500, 4200))
    assert numbers["r3l/train"] == list(range(4096)) and numbers["r3l/test"] == list(range(4096, 4196))
    assert TASK_SETS.committed_hash("r3l/test") == TASK_SETS.sha256(TASK_SETS.tasks("r3l/test"))
    build(sources(5, 1), tmp_path / "small", "original")
    monkeypatch.setenv("R3L_WEBSHOP", str(tmp_path / "small"))
    with pytest.raises(DataError, match="goal 15 is outside catalogue original-5-"):
        TASK_SETS.tasks("r3l/train")
