"""Sizes of a run on Trinity: rollouts and experiences a step, GPUs of a model, tokens on a GPU."""

from __future__ import annotations

import math

from r3l.config import ClusterConfig, ModelConfig, Run, find_model, names
from r3l.core.errors import ConfigError
from r3l.core.method import Method


def planned_rollouts(method: Method) -> int:
    """N as the released configurations state it. One call of our workflow makes all of them, and their retries."""
    settings = method.describe()
    return int(settings.get("group_size", 1)) + int(settings.get("reflected_rollouts", 0))


def experiences_per_step(run: Run, method: Method, multiple: int = 1) -> int:
    """How many experiences the trainer reads for one step, a multiple of ``multiple`` (its GPUs).

    Trinity's trainer waits for an exact number, while methods yield a varying one. This is the most that a step can
    yield; the advantage operator, which sees a whole step, pads with empty experiences. So a step of the explorer is a
    step of the trainer, as in the local engine. (The released code reads 96 x N, cut across groups.)
    """
    most = run.train.tasks_per_step * method.max_samples
    if run.samples == "turn":
        most *= run.env_settings.max_turns
    return math.ceil(most / multiple) * multiple


def planned_models() -> list[ModelConfig]:
    """The models whose GPUs are planned."""
    return [model for name in names("models") if (model := find_model(name)) and model.cluster]


def planned_model(run: Run) -> ModelConfig:
    """The model's configuration. Raises ConfigError where it has none that plans GPUs."""
    model = find_model(run.model)
    if model is None or model.cluster is None:
        planned = ", ".join(model.model for model in planned_models())
        raise ConfigError(
            f"model {run.model!r} has no GPUs planned, which the trinity engine needs; planned are {planned}. For "
            "another one add configs/models/NAME.yaml with a `cluster`; weights that lie in a folder are found through "
            "$R3L_MODELS"
        )
    return model


def cluster_of(run: Run, nodes: int | None = None, gpus_per_node: int | None = None) -> ClusterConfig:
    """The GPUs planned for the run's model, on other ``nodes`` or ``gpus_per_node`` where given.

    Raises ConfigError where none are left for training.
    """
    planned = planned_model(run).cluster
    assert planned is not None
    given = {"nodes": nodes, "gpus_per_node": gpus_per_node}
    cluster = planned.model_copy(update={key: value for key, value in given.items() if value is not None})
    if cluster.trainer_gpus < 1:
        raise ConfigError(
            f"{cluster.nodes} nodes of {cluster.gpus_per_node} GPUs leave {cluster.trainer_gpus} for training: "
            f"configs/models/{run.model}.yaml plans {cluster.engines} engines of {cluster.tensor_parallel}; give more "
            "GPUs, or plan fewer engines"
        )
    return cluster


def tokens_per_gpu(run: Run, cluster: ClusterConfig) -> int:
    """Tokens of a micro-batch on one GPU: as configured, and at least the longest dialog.

    verl asserts that a micro-batch holds the longest row (audit B-32: the released 3B configs can fall short of it).
    """
    return max(run.train.tokens_per_microbatch, math.ceil(run.sampling.max_context / cluster.sequence_parallel))
