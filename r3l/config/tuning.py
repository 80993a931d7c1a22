"""The runs of `r3l tune`, and its file.

Runs use the rate that it chooses once it is in configs/methods, `rates`.
"""

from __future__ import annotations

from pathlib import Path

from r3l.config.files import shown_path
from r3l.config.method import RATE, Variant
from r3l.config.run import Run
from r3l.config.tier import TuningConfig
from r3l.core.errors import ConfigError
from r3l.files.names import folder_name

FOLDER = "tuning"  # of results and of results/stored


def tuning_file(tier: str, env: str, row: Variant) -> Path:
    """The path of the file in which `r3l tune` keeps its result: ``tuning/TIER/ENV/METHOD.json``.

    It is relative to results or results/stored; nothing is written. Raises ConfigError for a name that cannot
    be a folder.
    """
    parts = {"tier": tier, "environment": env, "method": row.name.replace("/", "-")}
    *folders, name = (folder_name(kind, part) for kind, part in parts.items())
    return Path(FOLDER, *folders, f"{name}.json")


def rates(lr: float, tuning: TuningConfig) -> list[str]:
    """The learning rates to try, lowest first: lr / span, lr, lr * span, as texts of 3 significant digits."""
    return [f"{rate:.3g}" for rate in (lr / tuning.span, lr, lr * tuning.span)]


def at_rate(row: Variant, rate: str) -> Variant:
    """A copy of ``row`` with the further change ``train.lr=<rate>``."""
    return row._replace(changes=(*row.changes, f"{RATE}={rate}"))


def yaml_line(tier: str, env: str, row: Variant, rate: float) -> str:
    """A message: the file, and the line to write there so that the row's runs use the chosen ``rate``."""
    at = f"{tier}@{','.join(row.changes)}" if row.changes else tier
    return f"{shown_path('methods', row.method)}: under rates, {at}: {{{env}: {rate:g}}}"


def validation_task_set(run: Run) -> str:
    """The name of the task set on which a run's learning rate is chosen.

    Raises ConfigError if the environment has no validation task set in the run's tier.
    """
    if run.env_settings.validation_task_set is None:
        raise ConfigError(
            f"{run.env} has no validation task set in tier {run.tier}, and a rate is never chosen on the "
            f"test task set: add validation_task_set under tiers.{run.tier} in {shown_path('envs', run.env)}"
        )
    return run.env_settings.validation_task_set
