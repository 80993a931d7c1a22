"""Recipes of SFT, phase by phase: configs/sft/<name>.yaml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, ValidationError, field_validator, model_validator

from r3l.config.environment import environment_of
from r3l.config.files import Strict, check_file_name, validate
from r3l.config.fingerprint_inputs import sft_folder
from r3l.config.model import as_path
from r3l.config.tier import ComputeDtype, Device, LoraConfig, OptimizerConfig, SamplingConfig
from r3l.config.user_recipe import user_folder, user_recipe
from r3l.core.environment import Dialogue, Style
from r3l.core.errors import ConfigError, check_known, unknown
from r3l.envs.base.demonstrations import ErrorRates
from r3l.files.names import is_folder_name
from r3l.files.paths import CONFIGS, KEPT
from r3l.files.yaml_files import read_yaml
from r3l.reflection import GuidanceForm

OptimizerName = Literal["adamw", "muon"]  # r3l.sft.optimizer


class ExampleKind(StrEnum):
    """Kind of an SFT example: ``episode``, guided ``retry``, ``reflection``, or ``hinted``.

    ``hinted``: an episode with a hint at every turn.
    """

    EPISODE = "episode"
    RETRY = "retry"
    REFLECTION = "reflection"
    HINTED = "hinted"  # an episode with a hint at every turn


class SFTPhase(Strict):
    """A phase of SFT: ``steps`` on examples that are played on some tasks, which are in no split.

    The tasks are number ``first_task`` to ``first_task + tasks - 1``. A phase has a new optimiser and a
    cosine schedule of its learning rate.
    """

    first_task: int = Field(ge=0)
    tasks: int = Field(ge=1)
    steps: int = Field(ge=1)
    decay_steps: int = Field(
        ge=1, description="step at which the cosine ends; lr then stays at 5 %. May exceed the phase's steps"
    )
    warmup_steps: int = Field(ge=0)
    lr: float = Field(gt=0)
    shares: dict[ExampleKind, Annotated[float, Field(ge=0)]] | None = Field(
        None, description="share of a step's tokens by kind of example, 1 in all; none: the recipe's shares"
    )

    @field_validator("shares")
    @classmethod
    def _add_up(cls, value: dict[ExampleKind, float] | None) -> dict[ExampleKind, float] | None:
        if value is not None and round(sum(value.values()), 9) != 1:
            raise ValueError(f"shares of a phase must add up to 1, not to {sum(value.values()):g}")
        return value


class CritiquedFailures(Strict):
    """The critic's reflections on the model's own failures, as examples of kind ``reflection``.

    Before its first step the phase has the model play ``attempts`` attempts at each of ``tasks`` tasks, from
    number ``first_task`` on; the environment's critic reflects on each failure. An expert labels what the
    learner did, as in DAgger (arXiv 1011.0686).
    """

    first_task: int = Field(ge=0)
    tasks: int = Field(ge=1)
    attempts: int = Field(ge=1, description="attempts at each task")
    sampling: SamplingConfig


class ScriptedPhase(SFTPhase):
    """A phase whose examples are demonstrations by experts with the same error rates.

    With ``critiqued`` also the critic's reflections on the model's own failures.
    """

    variants: int = Field(ge=1, description="demonstrations per task")
    error_rates: dict[str, float] = Field(
        description="error rates of the environment's scripted experts, by its own keys"
    )
    critiqued: CritiquedFailures | None = None

    @field_validator("error_rates")
    @classmethod
    def _check_rates(cls, value: dict[str, float]) -> dict[str, float]:
        """Raise ValueError for rates that no scripted expert can have."""
        known = {field.name: field.default is MISSING for field in fields(ErrorRates)}
        for name in value:
            check_known("error rate", name, known)
        for name, required in known.items():
            if required and name not in value:
                raise ValueError(f"error rate {name!r} is missing; add it")
        ErrorRates(**value)
        return value


class SampledPhase(SFTPhase):
    """A phase of rejection sampling: the model's own reflections whose guided retry succeeded.

    The model, as the phases before have left it, plays ``attempts`` attempts at each task and reflects
    ``reflections`` times on each failure; each reflection guides a retry (r3l.sft.own_attempts).
    """

    attempts: int = Field(ge=1, description="attempts at each task")
    reflections: int = Field(1, ge=1, description="reflections on each failure, each with its retry")
    sampling: SamplingConfig


def _kind_of_phase(phase: Any) -> str:
    if isinstance(phase, SFTPhase):
        return "sampled" if isinstance(phase, SampledPhase) else "scripted"
    # Anything but a mapping has no keys; either kind refuses it.
    keys = phase.keys() if isinstance(phase, dict) else ()
    return "sampled" if {"attempts", "reflections", "sampling"} & set(keys) else "scripted"


AnyPhase = Annotated[
    Annotated[ScriptedPhase, Tag("scripted")] | Annotated[SampledPhase, Tag("sampled")],
    Discriminator(_kind_of_phase),
]


class SFTConfig(Strict):
    """A recipe of SFT, configs/sft/<name>.yaml: how a base checkpoint is made, phase by phase.

    ``threads``: number of torch threads. ``tokens_per_step``: tokens of the examples of one optimiser step.
    ``prompts``: ``full``, ``compact`` or ``released``. ``device``: ``auto``, ``cpu`` or ``cuda``.
    ``sources``: by key, where the values come from.

    A recipe is refused (ValidationError) if shares add up to more than 1; for ``lora.rank`` without a
    ``model``, with muon or with ``sharpness``; for ``hinted_share`` with another ``guidance`` than
    ``suggestion``; for sampled phases without guidance, or without a share of reflections unless prompts
    are compact; and for critiqued failures without a share of reflections.
    """

    name: str
    env: str
    seed: int
    max_turns: int = Field(ge=1)
    threads: int = Field(ge=1)
    tokens_per_step: int = Field(ge=1)
    model: str | None = Field(
        None, description="model to start from, as in `r3l train --model`; none: a new nano model"
    )
    task_sets: tuple[str, ...] = Field(
        (), description="task sets whose spare tasks are taught, in turn (several kinds of task)"
    )
    prompts: Style = "compact"
    options: dict[str, Any] = Field({}, description="the environment's options, as in configs/envs")
    guidance: GuidanceForm = Field("suggestion", description="form of the hint of a retry, as R3L's option")
    max_tokens: int | None = Field(None, ge=1, description="longer examples are left out and counted")
    tokens_per_microbatch: int | None = Field(
        None, ge=1, description="tokens of a forward and backward pass, with padding; none: a quarter step"
    )
    gradient_checkpointing: bool = False
    device: Device = "cpu"
    compute_dtype: ComputeDtype = Field(
        "float32", description="dtype of forward and backward passes, as in a run"
    )
    lora: LoraConfig = Field(
        LoraConfig(), description="adapter to train and merge, as in a run; rank 0: train all weights"
    )
    optimizer: OptimizerName = Field("adamw", description="muon needs fewer steps from random weights")
    layers: int = Field(5, ge=1, description="layers of a nano model")
    hidden_size: int = Field(
        128, ge=64, multiple_of=64, description="hidden size of a nano model, whose heads of 32 share 2 keys"
    )
    numbered_names: bool = Field(False, description="nano model: a name with its number is one token")
    sharpness: float = Field(
        1,
        gt=0,
        description="nano model: factor on its final logits; unlikely names are then sampled less",
    )
    prompt_weight: float = Field(ge=0, le=1, description="weight of prompt tokens; trained responses have 1")
    retry_share: float = Field(ge=0, le=1, description="share of tokens from guided retries")
    reflection_share: float = Field(
        0, ge=0, le=1, description="share of tokens from reflections; compact ones are part of an episode"
    )
    hinted_share: float = Field(
        0, ge=0, le=1, description="share of tokens from episodes with a hint at every turn, not just one"
    )
    plan_thoughts: bool = Field(False, description="the thought before a suggested action states the action")
    phases: list[AnyPhase] = Field(min_length=1)
    sources: dict[str, str]

    @model_validator(mode="after")
    def _check_shares(self) -> Self:
        """Raise ValueError for keys that contradict each other (see the class)."""
        if self.shares[ExampleKind.EPISODE] < 0:
            raise ValueError("retry_share, reflection_share and hinted_share must not add up to more than 1")
        if self.lora.rank and (self.optimizer != "adamw" or self.model is None):
            raise ValueError("lora.rank needs a model to add an adapter to, and optimizer adamw, not muon")
        if self.lora.rank and self.sharpness != 1:
            raise ValueError(
                "sharpness scales the weights of a nano model, and lora.rank trains none of them"
            )
        hinted = any(self.shares_of(phase)[ExampleKind.HINTED] for phase in self.phases)
        if (self.hinted_share or hinted) and self.guidance != "suggestion":
            raise ValueError(
                f"hinted_share, or a phase's share of hinted, needs guidance 'suggestion', not "
                f"{self.guidance!r}: its hints are suggestions"
            )
        for number, phase in enumerate(self.phases, start=1):
            critiqued = isinstance(phase, ScriptedPhase) and phase.critiqued is not None
            if critiqued and not self.shares_of(phase)[ExampleKind.REFLECTION]:
                raise ValueError(
                    f"phase {number} has critiqued failures, which are examples of kind reflection: give it "
                    "shares with reflection above 0"
                )
        if any(isinstance(phase, SampledPhase) for phase in self.phases):
            if self.guidance == "none":
                raise ValueError(
                    "a phase with attempts keeps reflections by their guided retries: set guidance"
                )
            if self.prompts != "compact" and not self.reflection_share:
                raise ValueError("a phase with attempts teaches reflections: set reflection_share above 0")
        return self

    def optimizer_settings(self, phase: SFTPhase) -> OptimizerConfig:
        """The optimiser's settings in ``phase``: the phase's learning rate, the recipe's micro-batches."""
        return OptimizerConfig(
            lr=phase.lr,
            lr_warmup_steps=phase.warmup_steps,
            betas=(0.9, 0.95),  # our choice: beta2 averages over 20 steps, since a phase has few
            tokens_per_microbatch=self.tokens_per_microbatch or max(1, self.tokens_per_step // 4),
            gradient_checkpointing=self.gradient_checkpointing,
        )

    @property
    def shares(self) -> dict[ExampleKind, float]:
        """Share of a step's tokens by kind of example, 1 in all; plain episodes get what the others leave."""
        rest = round(1 - (self.retry_share + self.reflection_share + self.hinted_share), 9)
        return {
            ExampleKind.EPISODE: rest,
            ExampleKind.RETRY: self.retry_share,
            ExampleKind.REFLECTION: self.reflection_share,
            ExampleKind.HINTED: self.hinted_share,
        }

    def shares_of(self, phase: SFTPhase) -> dict[ExampleKind, float]:
        """Share of a step's tokens by kind of example in ``phase``: its own shares, or the recipe's."""
        if phase.shares is None:
            return self.shares
        return {kind: phase.shares.get(kind, 0) for kind in ExampleKind}

    def dialogue(self) -> Dialogue:
        """Create the text side of the recipe's environment: prompts, and how it reads responses.

        Raises ConfigError for an unknown environment, and for options, prompts or max_turns that it refuses.
        """
        return environment_of(self.env).dialogue(self.prompts, self.max_turns, self.options)


def load_config(name: str) -> SFTConfig:
    """Read and validate the recipe configs/sft/<name>.yaml.

    If ``name`` is an environment of the user's folders (R3L_ENVS), the recipe is that of
    r3l.config.user_recipe. Raises ConfigError if there is none, if it is malformed, or if its name is not the
    file's.
    """
    if values := user_recipe(name):
        return validate(SFTConfig, values, f"the recipe of {name}")
    path = CONFIGS / "sft" / f"{name}.yaml"
    if not is_folder_name(name) or not path.is_file():
        known = sorted(p.stem for p in path.parent.glob("*.yaml"))
        raise ConfigError(unknown("recipe of configs/sft", name, known))
    config = validate(SFTConfig, read_yaml(path), str(path))
    check_file_name(path, "name", config.name)
    return config


def differing_keys(made: Mapping[str, Any], recipe: SFTConfig) -> list[str]:
    """The keys in which the recipe ``made``, as a stored model has it, differs from ``recipe``.

    ``sources``, which only gives reasons, never differs. A key that is newer than the model has its default,
    with which models are made as they were before it. A recipe that this version of r3l cannot read differs
    in the keys that it refuses.
    """
    try:
        old = SFTConfig.model_validate(made).model_dump(mode="json", exclude={"sources"})
    except ValidationError as error:
        return sorted({str(next(iter(detail["loc"]), "config")) for detail in error.errors()})
    new = recipe.model_dump(mode="json")
    return [key for key in old if old[key] != new[key]]


def default_folder(name: str, model: str | None = None) -> Path:
    """The folder in which recipe ``name`` builds its model by default; it need not exist.

    A recipe that starts from a model, ``model`` or its own, builds in the cache; one of a new nano model in
    results/stored/models, or in ``models`` of the user's folder that has the environment. Raises ConfigError
    for an unknown recipe.
    """
    base = model or load_config(name).model
    if base:
        return sft_folder(as_path(base), name)
    return (user_folder(name) or KEPT) / "models" / name
