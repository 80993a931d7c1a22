"""Writing a checkpoint to a disk that is full, or fills up: one paragraph, and the earlier one stays."""

import copy
import resource

import pytest
from conftest import make_trajectory
from r3l.baselines.grpo import GRPO

from r3l.config import TrainConfig
from r3l.core.batching import rows_of
from r3l.core.errors import RunDirectoryError
from r3l.core.trajectory import Group
from r3l.local import checkpoint
from r3l.local.training.trainer import Trainer

METHOD = GRPO({})
CONFIG = TrainConfig(steps=1, tasks_per_step=1, lr=1e-4, tokens_per_microbatch=16)


@pytest.fixture
def trained(nano):
    """A trainer after its first step: weights and two moments of each."""
    trainer = Trainer(copy.deepcopy(nano[0]), METHOD, CONFIG)
    trainer.step(
        rows_of(METHOD, [Group(make_trajectory(1).task, [make_trajectory(3, 1.0), make_trajectory(2)])])
    )
    return trainer


def test_a_disk_that_fills_up_while_a_checkpoint_is_written_leaves_the_earlier_one(nano, trained, tmp_path):
    earlier = checkpoint.save(tmp_path, trained, nano[1], "f", {})
    trained.steps_done = 2
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(
        resource.RLIMIT_FSIZE, (1 << 16, limits[1])
    )  # bytes of a file; more fail, as on a full disk
    try:
        with pytest.raises(RunDirectoryError, match="step-000002 cannot be written .* free the disk"):
            checkpoint.save(tmp_path, trained, nano[1], "f", {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == [earlier] == [checkpoint.last_good(tmp_path)]
