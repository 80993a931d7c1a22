"""Sizes of a run on Trinity: rollouts and experiences per step, GPUs per model, tokens per GPU."""

from __future__ import annotations

import math

from r3l.config import ClusterConfig, ModelConfig, Run, find_model, names
from r3l.core.errors import ConfigError
from r3l.core.method import Method


def experiences_per_step(run: Run, method: Method, multiple: int = 1) -> int:
    """Number of training rows (experiences) that Trinity's trainer reads per step: the most a step can have.

    Rounded up to a multiple of ``multiple``, the number of its GPUs.
    """
    # Trinity's trainer waits for an exact number, while a method's number varies. So this is the maximum of
    # a step, and the advantage operator, which sees complete steps, pads with empty experiences. Explorer and
    # trainer steps then match one to one, as in the local engine. (The released code reads 96 x N, cut across
    # groups.)
    most = run.train.tasks_per_step * method.max_samples
    if run.samples == "turn":
        most *= run.env_settings.max_turns
    return math.ceil(most / multiple) * multiple


def planned_models() -> list[ModelConfig]:
    """Models of configs/models with GPUs planned: their file has the key ``cluster``."""
    models = [find_model(name) for name in names("models")]
    return [model for model in models if model is not None and model.cluster is not None]


def planned_model(run: Run) -> ModelConfig:
    """The run's model as configs/models describes it; ConfigError if it has no GPUs planned (``cluster``)."""
    model = find_model(run.model)
    if model is None or model.cluster is None:
        planned = ", ".join(model.model for model in planned_models())
        raise ConfigError(
            f"model {run.model!r} has no GPUs planned, which the trinity engine needs; planned are "
            f"{planned}. For another model add configs/models/NAME.yaml with a `cluster`; weights in a local "
            "folder are found through $R3L_MODELS"
        )
    return model


def cluster_of(run: Run, nodes: int | None = None, gpus_per_node: int | None = None) -> ClusterConfig:
    """The GPUs planned for the run's model in configs/models; ``nodes``, ``gpus_per_node`` override the plan.

    Raises ConfigError if none are planned, or if sampling leaves no GPU for training.
    """
    planned = planned_model(run).cluster
    assert planned is not None
    given = {"nodes": nodes, "gpus_per_node": gpus_per_node}
    cluster = planned.model_copy(update={key: value for key, value in given.items() if value is not None})
    if cluster.trainer_gpus < 1:
        raise ConfigError(
            f"{cluster.nodes} nodes of {cluster.gpus_per_node} GPUs leave {cluster.trainer_gpus} for "
            f"training: configs/models/{run.model}.yaml plans {cluster.engines} engines of "
            f"{cluster.tensor_parallel}; give more GPUs, or plan fewer engines"
        )
    return cluster


def tokens_per_gpu(run: Run, cluster: ClusterConfig) -> int:
    """Tokens of a micro-batch on one GPU: ``train.tokens_per_microbatch``, or more for the longest dialog.

    One GPU holds ``sampling.max_context`` / ``sequence_parallel`` tokens of that dialog.
    """
    # verl asserts that a micro-batch holds the longest row (audit B-32: the released 3B configs can fall
    # short).
    longest = math.ceil(run.sampling.max_context / cluster.sequence_parallel)
    return max(run.train.tokens_per_microbatch, longest)
