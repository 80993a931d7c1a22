"""A file of configs/tiers: engine, model, and every number of training, sampling and evaluation."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from r3l.config.files import Label, Strict
from r3l.core.environment import Style
from r3l.core.option import REQUIRED, option
from r3l.core.policy import JudgePrompts, Samples

Compute = Literal["packed", "transformers", "vllm"]
Device = Literal["auto", "cpu", "cuda"]  # auto: a GPU if torch finds one
ComputeDtype = Literal["float32", "bfloat16", "bfloat16_anywhere"]  # see r3l.local.model.precision


class OptimizerConfig(Strict):
    """Settings of the optimiser step, for RL and SFT."""

    lr: float = option(
        REQUIRED, "learning rate of AdamW: about the change of a weight in one step", gt=0, le=1
    )
    lr_warmup_steps: int = option(
        0,
        "steps over which the learning rate grows to lr",
        "released code: none except for DAPO (audit 0.4, 4.4)",
        ge=0,
    )
    betas: tuple[float, float] = option(
        (0.9, 0.999), "decay rates of AdamW's moments", "released code (audit 0.4)"
    )
    weight_decay: float = option(0.01, "weight decay of AdamW", "released code (audit 0.4)", ge=0, le=10)
    grad_clip: float = option(1.0, "largest norm of a step's gradient", "released code (audit 4.1)", gt=0)
    tokens_per_microbatch: int = option(
        8192,
        "most tokens of one forward and backward pass; a common beginning of rows counts once (with "
        "compute=transformers, every row with its padding)",
        "our choice: fits 2 GB with a nano model",
        ge=1,
    )
    gradient_checkpointing: bool = option(
        False,
        "recompute activations in the backward pass instead of keeping them",
        "our choice: a nano model fits without",
    )

    @field_validator("betas")
    @classmethod
    def _check_betas(cls, betas: tuple[float, float]) -> tuple[float, float]:
        if not all(0 <= beta < 1 for beta in betas):
            raise ValueError("each must be at least 0 and below 1")
        return betas


class TrainConfig(OptimizerConfig):
    """Settings of training by RL: the optimiser's, and how many steps, tasks and checkpoints."""

    steps: int = option(REQUIRED, "optimiser steps", ge=0, le=10_000_000)
    tasks_per_step: int = option(REQUIRED, "tasks whose groups make up one step", ge=1, le=100_000)
    save_every: int = option(5, "steps between checkpoints", "our choice: resuming repeats little", ge=1)
    save_minutes: float = option(
        30, "minutes between checkpoints at most; local engine", "our choice: as above", gt=0
    )
    sync_interval: int = option(
        1,
        "S: the sampling weights are synchronized every S updates",
        "paper and released code: 1 (audit 0.3, 4.1)",
        ge=1,
    )
    kl_metric_every: int = option(
        0,
        "measure the KL to the base checkpoint every so many steps; 0: never",
        "our choice: no reference model if the objective has none (paper)",
        ge=0,
    )


class SamplingConfig(Strict):
    """Settings of sampling in training: temperature, and limits in tokens."""

    temperature: float = option(
        1.0,
        "temperature of sampling, and of the policy that training optimises",
        "paper and released code: 1.0 (audit 4.1)",
        ge=0.01,
        le=100,
    )
    max_tokens: int = option(REQUIRED, "most tokens of one response", ge=1, le=10_000_000)
    feedback_max_tokens: int = option(
        REQUIRED, "most tokens of one reflection or critique", ge=1, le=10_000_000
    )
    max_context: int = option(
        REQUIRED, "most tokens of one dialog, prompt and responses together", ge=1, le=10_000_000
    )
    tokens_per_batch: int | None = option(
        None,
        "most tokens of the dialogs that are sampled together, with padding; none: all together. vLLM: "
        "tokens of its cache; none: 64 dialogs of max_context",
        "our choice: nano dialogs are short",
        ge=1,
    )


Projection = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


class LoraConfig(Strict):
    """A low-rank adapter that trains instead of the weights (r3l.local.model.lora), without dropout."""

    rank: int = option(0, "rank of the adapter; 0: all weights train", "our choice", ge=0)
    alpha: int = option(
        32, "alpha / rank scales the product of both factors", "LoRA Without Regret (2025), and TRL", ge=1
    )
    targets: tuple[Projection, ...] = option(
        get_args(Projection), "projections with an adapter", "LoRA Without Regret (2025): all", min_length=1
    )


class EvaluationConfig(Strict):
    """Settings of evaluation: of the last checkpoint, never of a peak, without reflection or guidance.

    ``curve`` is refused unless its updates are above 0, in ascending order and each once.
    """

    temperature: float = option(
        0.4, "temperature of sampling; 0: greedy", "released code: 0.4 (audit 3.1)", ge=0, le=100
    )
    episodes_per_task: int = option(
        1, "episodes of each test task", "released code: one (audit 3.1)", ge=1, le=10_000
    )
    batch: int = option(REQUIRED, "episodes that are played at once", ge=1, le=100_000)
    tasks: int | None = option(
        None, "number of test tasks; none: all", "released code: all (audit 3.1)", ge=1
    )
    draw: Literal["first", "drawn", "by_group"] = option(
        "by_group",
        "which tasks, if not all: the first by id, drawn by the run's seed, or drawn from each group its "
        "share",
        "our choice: by id the first tasks may all be of one kind",
    )
    curve: tuple[int, ...] = option(
        (),
        "updates after which the test task set is played during training too: the held-out learning curve, "
        "in curve.jsonl; local engine",
        "our choice: it costs an evaluation each, and changes no result",
    )

    @field_validator("curve")
    @classmethod
    def _check_curve(cls, curve: tuple[int, ...]) -> tuple[int, ...]:
        if list(curve) != sorted({update for update in curve if update >= 1}):
            raise ValueError("updates count from 1, each once, in ascending order")
        return curve


class JudgeConfig(Strict):
    """The model that writes feedback if a method's `feedback` is judge; R3L_JUDGE is its address."""

    model: str = option("", "its name at the server", "our choice: users of a judge name it")
    prompts: JudgePrompts = option(
        JudgePrompts.INSTRUCTIONS,
        "instructions: full instructions and a log; as_policy: the prompt of the policy",
        "our choice: a judge was not trained on compact prompts",
    )
    temperature: float = option(1.0, "temperature of its sampling", "RLTF released code: 1.0", ge=0)
    concurrency: int = option(16, "requests at the same time", "our choice: as r3l evaluate --server", ge=1)
    deadline: float = option(
        600.0, "most seconds of one request", "our choice: as r3l evaluate --server", gt=0
    )


Engine = Literal["local", "trinity", "server"]  # server: for r3l evaluate, it trains nothing


class TierSettings(Strict):
    """The settings that a tier gives to its runs.

    A tier is a named scale of experiments (configs/tiers, such as nano for two CPU cores): engine, training,
    sampling, evaluation and hardware. A run has the same settings, after its own changes. ``engine``:
    ``local``, ``trinity``, or ``server``, which only evaluates.
    """

    engine: Engine
    prompts: Style = Field(
        description="full, compact (both by this project) or released: docs/environments.md"
    )
    samples: Samples = option(
        "trajectory",
        "training sample: a complete dialog, or one response in its context",
        "released code: a complete dialog (turns for thinking models, audit 1.11)",
    )
    train: TrainConfig
    sampling: SamplingConfig
    evaluation: EvaluationConfig
    judge: JudgeConfig = JudgeConfig()
    lora: LoraConfig = LoraConfig()
    workers: int = option(
        1, "environment processes", "our choice: an engine step takes 0.4 ms", ge=0, le=1024
    )
    threads: int = option(
        REQUIRED, "torch threads; part of the fingerprint, since sums depend on their number", ge=1, le=1024
    )
    device: Device = option("auto", "device of torch; auto: a GPU if torch finds one", "our choice")
    compute: Compute = option(
        "packed",
        "packed: rows side by side, shared prefixes once, on a CPU with compiled attention if it is faster "
        "(r3l.local.model.forward); transformers: padded rows, for other architectures; vllm: vLLM "
        "samples, packed trains. They differ by rounding; local engine",
        "our choice: the fastest, with which stored runs were made",
    )
    compute_dtype: ComputeDtype = option(
        "float32",
        "type of forward and backward passes; bfloat16: on a GPU and on a CPU with AMX or AVX512-BF16, "
        "float32 on others; bfloat16_anywhere: bfloat16 on others too (r3l.local.model.precision)",
        "our choice: exact on any machine",
    )


class TuningConfig(Strict):
    """How `r3l tune` chooses the learning rate of each method of a tier: the rates and seeds that it tries.

    Its runs have as many updates as the tier's other runs.
    """

    span: float = Field(
        gt=1, description="the learning rates are the usual one, and it divided and multiplied by this"
    )
    seeds: list[Annotated[int, Field(ge=0)]] = Field(
        min_length=4, description="seeds; other ones than experiments use"
    )


class TierConfig(TierSettings):
    """configs/tiers/<name>.yaml: the settings of a tier, its default model, and how it tunes.

    ``label``: its printed name. ``sources``: by key, where the values come from.
    """

    tier: str
    label: Label
    model: str = Field(
        description="default model: a name of configs/models or results/stored/models, a path or a hub id"
    )
    tuning: TuningConfig | None = Field(None, description="tuning of learning rates; none: not tuned")
    sources: dict[str, str]
