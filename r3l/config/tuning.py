"""Learning rates that `r3l tune` has chosen: where they are stored, and a run under profile `tuned`.

A tuning is an input like a start model: a file of results/stored/tuning with everything that led to the choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from r3l.config.profile import TUNED, profile_of
from r3l.config.run import Run
from r3l.config.tier import TuningConfig
from r3l.config.variant import Variant
from r3l.core.errors import ConfigError
from r3l.files.json_files import read_json
from r3l.files.names import folder_name
from r3l.files.paths import STORED

FOLDER = "tuning"  # of results and of results/stored
RATE, STEPS = "train.lr", "train.steps"


def untuned(row: Variant) -> Variant:
    """A row without its profile where that is `tuned`: what is tuned."""
    kept = tuple(change for change in row.changes if change != f"profile={TUNED}")
    return row._replace(changes=kept) if profile_of(row) == TUNED else row


def place(tier: str, env: str, row: Variant) -> Path:
    """Where a tuning lies, under results or results/stored."""
    parts = {"tier": tier, "environment": env, "method": untuned(row).name.replace("/", "-")}
    *folders, name = (folder_name(kind, part) for kind, part in parts.items())
    return Path(FOLDER, *folders, f"{name}.json")


def rates(lr: float, tuning: TuningConfig) -> list[str]:
    """The grid around a learning rate, lowest first, as a variant has them."""
    return [f"{rate:.3g}" for rate in (lr / tuning.span, lr, lr * tuning.span)]


def at_rate(row: Variant, rate: str, tuning: TuningConfig) -> Variant:
    """The variant that is trained to try a rate; one that states its updates keeps them."""
    steps = (f"{STEPS}={tuning.steps}",) if tuning.steps and not row.value(STEPS, "") else ()
    return row._replace(changes=(*row.changes, f"{RATE}={rate}", *steps))


def has_tuning(tier: str, env: str, row: Variant) -> bool:
    """Whether a row's tuning is stored."""
    return (STORED / place(tier, env, row)).is_file()


def stored_tuning(tier: str, env: str, row: Variant) -> tuple[dict[str, Any], str]:
    """The stored tuning of a row, and its path from the top of the project. Raises ConfigError where there is none."""
    where = place(tier, env, row)
    if not has_tuning(tier, env, row):
        raise ConfigError(
            f"{untuned(row).name} has no tuned learning rate on {env} ({tier}): no file results/stored/{where}; tune "
            f"it (r3l tune '{untuned(row).name}' --env {env} --tier {tier}, then r3l stored add), or leave out profile "
            f"{TUNED}"
        )
    return read_json(STORED / where), f"results/stored/{where}"


def first_run(tuning: Mapping[str, Any]) -> dict[str, Any]:
    """What a stored tuning keeps of the first run that was made for it."""
    run: dict[str, Any] = tuning["rates"][0]["runs"][0]
    return run


def is_current(tuning: dict[str, Any], tried: Run) -> bool:
    """Whether a stored tuning is of runs that are made today. ``tried``: its first run."""
    return bool(tried.fingerprint() == first_run(tuning)["fingerprint"])


def check_current(tuning: dict[str, Any], path: str, tried: Run) -> None:
    """Raises ConfigError where a stored tuning is of other runs than are made today. ``tried``: its first run."""
    first = first_run(tuning)
    if not is_current(tuning, tried):
        raise ConfigError(
            f"{path} was made with another configuration than today's (start model {first['model']}, fingerprint "
            f"{first['fingerprint']}, now {Path(tried.model).name}, {tried.fingerprint()}): tune {tried.env} again"
        )


def validation_task_set(run: Run) -> str:
    """What rates are chosen on. Raises ConfigError where the environment has no such task set in the run's tier."""
    if run.env_settings.validation_task_set is None:
        raise ConfigError(
            f"{run.env} has no validation task set in tier {run.tier}, and a rate is never chosen on the test task "
            f"set: add validation_task_set under tiers.{run.tier} in configs/envs/{run.env}.yaml"
        )
    return run.env_settings.validation_task_set
