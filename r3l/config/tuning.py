"""What `r3l tune` tries, and where a tuning lies. The rate that it chooses is written in configs/methods, `rates`."""

from __future__ import annotations

from pathlib import Path

from r3l.config.method import RATE, Variant
from r3l.config.run import Run
from r3l.config.tier import TuningConfig
from r3l.core.errors import ConfigError
from r3l.files.names import folder_name

FOLDER = "tuning"  # of results and of results/stored
STEPS = "train.steps"


def place(tier: str, env: str, row: Variant) -> Path:
    parts = {"tier": tier, "environment": env, "method": row.name.replace("/", "-")}
    *folders, name = (folder_name(kind, part) for kind, part in parts.items())
    return Path(FOLDER, *folders, f"{name}.json")


def rates(lr: float, tuning: TuningConfig) -> list[str]:
    """The grid around a learning rate, lowest first, as a variant has them."""
    return [f"{rate:.3g}" for rate in (lr / tuning.span, lr, lr * tuning.span)]


def at_rate(row: Variant, rate: str, tuning: TuningConfig) -> Variant:
    """The variant that is trained to try a rate; one that states its updates keeps them."""
    steps = (f"{STEPS}={tuning.steps}",) if tuning.steps and not row.value(STEPS, "") else ()
    return row._replace(changes=(*row.changes, f"{RATE}={rate}", *steps))


def to_write(tier: str, env: str, row: Variant, rate: float) -> str:
    """What to write in the method's file so that its runs have the rate that was chosen."""
    at = f"{tier}@{','.join(row.changes)}" if row.changes else tier
    return f"configs/methods/{row.method}.yaml: under rates, {at}: {{{env}: {rate:g}}}"


def validation_task_set(run: Run) -> str:
    """What rates are chosen on. Raises ConfigError where the environment has no such task set in the run's tier."""
    if run.env_settings.validation_task_set is None:
        raise ConfigError(
            f"{run.env} has no validation task set in tier {run.tier}, and a rate is never chosen on the test task "
            f"set: add validation_task_set under tiers.{run.tier} in configs/envs/{run.env}.yaml"
        )
    return run.env_settings.validation_task_set
