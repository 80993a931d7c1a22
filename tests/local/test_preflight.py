"""Before training: sampling and training must agree on every token's log-probability."""

import pytest

from r3l.config import resolve
from r3l.core.errors import EngineError
from r3l.local import preflight as module
from r3l.local.preflight import LIMITS, preflight

RUN = resolve("nano", "math", "grpo", 0, overrides=["train.tasks_per_step=1", "workers=0"])


def test_they_agree_in_float32():
    report = preflight(RUN)
    assert report["tokens"] > 50 and report["dtype"] == "torch.float32"
    assert 0 < report["logprob_mismatch/max"] < 1e-4 < report["limit/max"]
    assert (report["limit/mean"], report["limit/max"]) == LIMITS[module.torch.float32]


def test_a_trainer_at_another_temperature_is_found(monkeypatch):
    def warmer(session, method):
        trainer = trainer_of(session, method)
        trainer.temperature = 1.0  # sampling: 0.7
        return trainer

    trainer_of = module.trainer_of
    monkeypatch.setattr(module, "trainer_of", warmer)
    with pytest.raises(
        EngineError, match=r"disagree on log-probs by 0\.\d+ nats in the mean .* Do not train"
    ):
        preflight(RUN)
