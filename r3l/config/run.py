"""A Run: one cell with its seed, fully resolved; its fingerprint, and the objects that its settings name.

Two runs with one fingerprint give the same numbers on the same kind of machine. So the fingerprint covers
everything that decides a result and nothing else. It hashes the settings below without ``NOT_HASHED``
(labels, worker counts, how often checkpoints are saved), and the inputs: digests of the models and data that
the settings only name (r3l.config.fingerprint_inputs). A manifest keeps both, so that the fingerprint of a
stored run can be recomputed without its model or data. A change of code that changes results raises a
version instead: the ``version`` of the method or environment if it concerns only these (it is part of the
inputs), else ``SCHEMA_VERSION``.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from r3l.config.environment import EnvSettings, environment_of
from r3l.config.files import differences
from r3l.config.fingerprint_inputs import fingerprint_inputs, model_name
from r3l.config.method import ProfileName, method_of
from r3l.config.model import ClusterConfig, find_model
from r3l.config.tier import TierSettings
from r3l.core.environment import Dialogue
from r3l.core.errors import ConfigError
from r3l.feedback.feedback import FeedbackSource
from r3l.files.names import folder_name

if TYPE_CHECKING:
    from r3l.core.method import Method

SCHEMA_VERSION = 3  # raise when a change of code makes all old results incomparable

NOT_HASHED: dict[str, set[str]] = {  # keys that change no result, by section
    "": {
        *("label", "method_label"),  # printed names
        "profile",  # its settings are hashed themselves
        *("model", "served"),  # the inputs have the digest of the weights; a server's address may change
        "workers",  # the same numbers, faster
    },
    "train": {"save_every", "save_minutes", "gradient_checkpointing"},  # how often and how it is computed
    "env_settings": {"validation_task_set", "further_test_task_sets"},  # other scores of the same weights
    "evaluation": {"curve"},  # draws by address: playing on the way changes no later draw
    "judge": {"concurrency", "deadline"},
}


class Run(TierSettings):
    """One method, environment, model and seed with all settings resolved (:func:`r3l.config.resolve`).

    A run's manifest stores it, and its fingerprint hashes it. A cell is a run without its seed. ``label``,
    ``method_label``: printed names of tier and method. ``profile``: whose settings hold: ``paper``,
    ``released_code`` or ``fair`` (equal budgets).
    """

    tier: str
    label: str
    env: str
    method: str
    method_label: str
    profile: ProfileName
    model: str
    served: str = Field(
        "", description="digits of the address of the server that has the model; empty: a local model"
    )
    seed: int = Field(ge=0, lt=2**63)
    env_settings: EnvSettings
    method_code: str
    method_settings: dict[str, Any]  # all of them, defaults included
    protocol: str | None = Field(
        None, description="name and digest of a file of configs/protocols/ENV; none: the settings of training"
    )
    own_code: dict[str, dict[str, str]] = Field(
        {}, description="digests of the user's files (r3l.config.user_code)"
    )

    def model_name(self, inputs: Mapping[str, Any] | None = None) -> str:
        """The model's name under results/ and in tables; ``MODEL@DIGITS`` (``served``) if a server has it.

        The name of a path or hub id ends with digits of a digest of the weights, or of the id. The digest is
        read from ``inputs``, the inputs that a manifest recorded; by default this machine's :meth:`inputs`.
        """
        if self.served:
            return f"{Path(self.model).name}@{self.served}"
        return model_name(self.model, inputs["model"] if inputs else None)

    def cell_of(self, inputs: Mapping[str, Any] | None = None) -> str:
        """The folder of the run's seeds under results/: ``tier/env/model/method``.

        A slash in a variant's name becomes a dash. ``inputs``: :meth:`inputs` as a manifest has them, by
        default this machine's. Raises ConfigError if a part cannot be a folder.
        """
        parts = {"tier": self.tier, "environment": self.env, "model": self.model_name(inputs)}
        parts["method"] = self.method.replace("/", "-")
        return "/".join(folder_name(kind, name) for kind, name in parts.items())

    @property
    def cell(self) -> str:
        """``tier/env/model/method``, the folder of its seeds under results/.

        A model that is a path or hub id ends with digits of its digest on this machine. Raises ConfigError if
        a part cannot be a folder.
        """
        return self.cell_of()

    @property
    def directory(self) -> str:
        """``tier/env/model/method/seedN``: its directory under results/.

        Raises ConfigError if a part cannot be a folder.
        """
        return f"{self.cell}/seed{self.seed}"

    def inputs(self) -> dict[str, Any]:
        """Digests and versions of what the run reads on this machine now (r3l.config.fingerprint_inputs)."""
        inputs = fingerprint_inputs(self.env, self.model, self.env_settings, self.method_code, self.prompts)
        # Keys of the model's file that decide what Trinity computes; the local engine reads neither.
        if self.engine == "trinity" and (described := find_model(self.model)):
            inputs["model_file"] = {"dtype": described.dtype, "thinking": described.thinking}
        return inputs

    def fingerprint(self, inputs: Mapping[str, Any] | None = None) -> str:
        """16 hex digits of a hash over all that decides the run's result: settings and ``inputs``.

        Equal hashes mean equal numbers on the same kind of machine. ``inputs``: the inputs that a manifest
        recorded; by default :meth:`inputs`.
        """
        values = hashed(self.model_dump(mode="json"))
        values |= {"schema": SCHEMA_VERSION, "inputs": self.inputs() if inputs is None else inputs}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]

    def differences(self, manifest: Mapping[str, Any]) -> list[str]:
        """``KEY is VALUE there and VALUE here`` for each key that differs between a manifest and this run.

        Only keys that the fingerprint covers are compared; the result is sorted by key. This run's inputs
        (digests and versions of what it reads) are those of this machine now. [] if the fingerprints are
        equal, and also if only the SCHEMA_VERSION differs.
        """
        there = {**hashed(manifest.get("run", {})), "inputs": manifest.get("inputs", {})}
        here = {**hashed(self.model_dump(mode="json")), "inputs": self.inputs()}
        return [f"{key} is {a} there and {b} here" for key, a, b in differences(there, here)]


def hashed(run: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a run's values, as a manifest has them, with only the values that enter its fingerprint."""
    values = {}
    for key, value in run.items():
        values[key] = dict(value) if isinstance(value, dict) else value
    # A section that the run does not use decides nothing.
    if feedback_source(values.get("method_settings", {})) is not FeedbackSource.JUDGE:
        values.pop("judge", None)
    if not values.get("lora", {}).get("rank"):
        values.pop("lora", None)
    if values.get("device") == "auto":  # the machine decides, which the manifest names
        values.pop("device")
    if values.get("evaluation", {}).get("tasks") is None:  # all tasks are played, so none are drawn
        for key in ("tasks", "draw"):
            values.get("evaluation", {}).pop(key, None)
    # Settings added after runs were stored: at their defaults they must not change those runs' fingerprints.
    later = {
        "min_logprob": None,
        "retries_until": 1.0,
        "amplify_until": 1.0,
        "feedback_corruption": 0.0,
        "belief_prior": "success_rate",
    }
    for key, default in later.items():
        if key in values.get("method_settings", {}) and values["method_settings"][key] == default:
            values["method_settings"].pop(key)
    for section, keys in NOT_HASHED.items():
        for key in keys:
            (values.get(section, {}) if section else values).pop(key, None)
    return values


def feedback_source(settings: Mapping[str, Any]) -> FeedbackSource | None:
    """The author of the feedback that a method with these settings learns from: ``settings["feedback"]``.

    None if it has no such setting, or plays no retries. Raises ConfigError for an author that this version
    does not know.
    """
    if settings.get("retries") == 0 or "feedback" not in settings:
        return None
    try:
        return FeedbackSource(settings["feedback"])
    except ValueError as error:
        known = ", ".join(FeedbackSource)
        raise ConfigError(
            f"setting 'feedback' is {settings['feedback']!r}; it must be one of {known}"
        ) from error


def dialogue_of(run: Run) -> Dialogue:
    """The text side of a run's environment: its prompts, and how it reads responses.

    Raises ConfigError for an unknown environment, and for an option, prompt style or turn limit that it
    refuses.
    """
    return environment_of(run.env).dialogue(run.prompts, run.env_settings.max_turns, run.env_settings.options)


def build_method(run: Run) -> Method:
    """The algorithm of a run, an object of its method's class with the run's settings.

    Raises ConfigError if the class cannot be used or the settings are wrong.
    """
    return method_of(run.method, run.method_code, run.method_settings)


def trains(run: Run) -> bool:
    """Whether the run's method trains, and for at least one step. Raises ConfigError as build_method."""
    return build_method(run).trains and run.train.steps > 0


def gpu_cluster(run: Run) -> ClusterConfig | None:
    """The GPUs that training ``run`` takes on the trinity engine, from its model's file.

    None on another engine, if nothing trains, and if the model has no file or its file names no GPUs.
    """
    model = find_model(run.model)
    return model.cluster if model and run.engine == "trinity" and trains(run) else None
