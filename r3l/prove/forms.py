"""The two forms of the kit: on a GPU, and dry, on a CPU with the nano model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from r3l.config import Run, resolve
from r3l.files.paths import KEPT

HOUSES = ("env_settings.train_task_set=nano/train", "env_settings.test_task_set=nano/test")  # no download


@dataclass(frozen=True)
class Form:
    """What the parts run with. Settings are overrides, as of ``--set``.

    ``report``: the folder of the report, ``work``: of runs, models and logs. ``minutes``: what all parts may take.
    ``stage``: the supervised stage's recipe. ``repeats``: of benches; ``length``: tokens of a benched response.
    """

    name: str
    tier: str
    model: str
    minutes: float
    report: Path
    work: Path
    stage: str
    stage_workers: int
    settings: tuple[str, ...]
    short: tuple[str, ...]
    learning: tuple[str, ...]
    memory_tasks: int
    repeats: int
    length: int

    @property
    def stage_folder(self) -> Path:
        """Where the supervised stage keeps its model."""
        return self.work / "stage"

    @property
    def start(self) -> str:
        """The model of the supervised stage where that has one, else what it starts from."""
        return str(self.stage_folder.absolute()) if (self.stage_folder / "sft.json").is_file() else self.model

    def run(self, method: str, *settings: str, model: str | None = None) -> Run:
        """A run of the tier on ALFWorld's houses, from ``model`` (default: :attr:`start`)."""
        return resolve(self.tier, "alfworld", method, 0, model or self.start, [*self.settings, *settings])


GPU = Form(
    name="gpu",
    tier="smol",
    model="smollm2-135m",
    minutes=25,
    report=KEPT / "smol" / "gpu",
    work=Path("results/prove/gpu"),
    stage="smol_alfworld_slices",
    stage_workers=8,
    settings=(*HOUSES, "env_settings.sft=null", "workers=4", "train.save_every=1"),
    short=("train.tasks_per_step=4", "env_settings.max_turns=10", "sampling.max_tokens=96"),
    learning=("train.steps=1000", "train.tasks_per_step=8", "env_settings.max_turns=15", "sampling.max_tokens=128"),
    memory_tasks=16,
    repeats=3,
    length=64,
)

DRY = Form(
    name="dry",
    tier="nano",
    model="alfworld-1.5m-hints",
    minutes=100,
    report=Path("results/prove/dry/report"),
    work=Path("results/prove/dry"),
    stage="nano_few_steps",
    stage_workers=0,
    settings=("workers=0", "train.save_every=1", "device=cpu"),
    short=("train.tasks_per_step=1", "method_settings.group_size=4", "env_settings.max_turns=6"),
    learning=("train.steps=2", "train.tasks_per_step=1", "method_settings.group_size=4", "env_settings.max_turns=6"),
    memory_tasks=1,
    repeats=1,
    length=4,
)
