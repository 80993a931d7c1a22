"""What a long run takes while it runs: memory, descriptors, threads of its processes and bytes of its folder."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import psutil

Sample = dict[str, float]
SECONDS = 2.0  # between samples
RUN = ["env_settings.max_turns=4", "method_settings.group_size=4", "train.tasks_per_step=1", "workers=2"]


def samples(process: psutil.Process, run_dir: Path, temporary: Path) -> Iterator[Sample]:
    """One every few seconds, from the first step on until ``process`` ends its workers."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        time.sleep(SECONDS)
        try:
            sample = _sample(process, run_dir, temporary)
        except (psutil.NoSuchProcess, FileNotFoundError):  # it has just ended, or a checkpoint was replaced
            continue
        if sample["step"] and sample["workers memory"]:
            yield sample


def _sample(process: psutil.Process, run_dir: Path, temporary: Path) -> Sample:
    children = process.children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    metrics = run_dir / "metrics.jsonl"
    sample: Sample = {"step": len(metrics.read_bytes().splitlines()) if metrics.is_file() else 0}
    sample["processes"] = 1 + len(children)
    for name, of_role in (("trainer", [process]), ("workers", workers)):
        sample[f"{name} memory"] = sum(one.memory_info().rss for one in of_role)
        sample[f"{name} descriptors"] = sum(one.num_fds() for one in of_role)
        sample[f"{name} threads"] = sum(one.num_threads() for one in of_role)
    sample["checkpoints"] = _bytes(run_dir.glob("checkpoints/*/*"))
    sample["metrics"] = _bytes([metrics])
    sample["other files"] = _bytes(path for path in run_dir.iterdir() if path != metrics)
    sample["temporary files"] = _bytes(temporary.rglob("*"))
    return sample


def _bytes(paths: Iterable[Path]) -> int:
    return sum(path.stat().st_size for path in paths if path.is_file())


def quarter(rows: Sequence[Sample], number: int) -> list[Sample]:
    """Samples of a quarter of the steps, counted from 0."""
    last = max(row["step"] for row in rows)
    return [row for row in rows if last * number / 4 <= row["step"] < last * (number + 1) / 4]


def write(rows: Sequence[Sample], path: Path) -> None:
    """As CSV."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


PANELS = (
    ("Memory (MiB)", 2**20, ("trainer memory", "workers memory")),
    ("Descriptors", 1, ("trainer descriptors", "workers descriptors")),
    ("Threads", 1, ("trainer threads", "workers threads")),
    ("Disk (MiB)", 2**20, ("checkpoints", "metrics", "other files", "temporary files")),
)


def draw(rows: Sequence[Sample], path: Path, caption: str) -> None:
    """A picture of ``rows``: a subplot each for memory, descriptors, threads and disk, over steps."""
    import matplotlib

    from r3l.report.figures.style import GREY, PAGE, RC, save, subplots

    with matplotlib.rc_context(RC):
        figure, axes = subplots(1, len(PANELS), PAGE, 2.2)
        for ax, (title, unit, keys) in zip(axes[0], PANELS, strict=True):
            for key in keys:
                ax.plot([row["step"] for row in rows], [row[key] / unit for row in rows], label=key, linewidth=0.9)
            ax.set_title(title)
            ax.set_xlabel("step")
            ax.set_ylim(0, 1.7 * max(row[key] / unit for row in rows for key in keys))
            ax.legend(loc="upper left", fontsize=6)
        figure.supxlabel(caption, x=0.01, ha="left", fontsize=6, color=GREY)
        save(figure, path)
