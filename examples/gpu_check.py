"""Run on a GPU the checks that this project passes on CPUs. Prints a table; exit code 1 if a check fails.

    r3l model fetch qwen2.5-coder-0.5b
    python examples/gpu_check.py         # that model on word problems
    python examples/gpu_check.py --nano  # the nano model, on a GPU or a CPU

Each check runs `r3l` as a user does: log-probabilities of sampling and training agree (float32, bfloat16,
vLLM), a stopped run resumes to the same bytes, R3L and GRPO train a few steps, a step is timed. Output stays
in --out.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from r3l.bench.measuring import matrix_rate_of

# Small steps of templated word problems, which need no download: for a published model, and for the nano
# model.
PUBLISHED = (
    "train.tasks_per_step=8",
    "env_settings.max_turns=1",
    "env_settings.options.attempts=1",
    "sampling.max_context=2048",
    "train.tokens_per_microbatch=8192",
)
NANO = ("train.tasks_per_step=2", "method_settings.group_size=4")


class Check:
    """The checks of one device, with a published ``model`` or (None) the nano model. ``out``: folder of runs
    and logs.

    A check returns the text of its table row, or raises RuntimeError.
    """

    def __init__(self, model: str | None, out: Path) -> None:
        self.model = model
        self.out = out
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.cell = ("--tier", "smol", "--env", "math", "--model", model) if model else ("--env", "math")
        self.settings = PUBLISHED if model else NANO

    def report(self, name: str, *words: str, settings: tuple[str, ...] = ()) -> dict[str, Any]:
        """The JSON that `r3l WORDS --json` prints. Raises RuntimeError with the end of its log."""
        log = self.out / f"{name}.log"
        with log.open("w") as errors:
            command = _command(*words, "--json", settings=settings)
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        if done.returncode != 0:
            end = " ".join(log.read_text().split())[-300:]
            raise RuntimeError(f"exit code {done.returncode}: {end} ({log})")
        return dict(json.loads(done.stdout))

    def card(self) -> str:
        """The device and its speed at matrix products."""
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        return f"{name}, {matrix_rate_of(self.device, torch.float32) / 1e12:.3g} TFLOP/s in float32"

    def agreement(self, *settings: str) -> str:
        """`r3l doctor step`: fails if sampling and training disagree, or memory does not suffice."""
        words = ("doctor", "step", *self.cell, "--method", "r3l")
        report = self.report("-".join(("agreement", *settings)), *words, settings=(*self.settings, *settings))
        gap = report["logprob_mismatch/mean"]
        most = report["logprob_mismatch/max"]
        peak = f", {report['peak_gib']:.1f} GiB at most" if report["peak_gib"] else ""
        return f"{gap:.2g} nats in the mean, {most:.2g} at most over {report['tokens']} tokens{peak}"

    def training(self, method: str) -> str:
        """`r3l train` for a few steps: their time and tokens."""
        run_dir = self.out / method
        settings = (*self.settings, f"train.steps={10 if self.model else 2}")
        words = ("train", *self.cell, "--method", method, "--run-dir", str(run_dir))
        self.report(f"train-{method}", *words, settings=settings)
        rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
        seconds = sum(row["seconds/collect"] + row["seconds/train"] for row in rows) / len(rows)
        tokens = sum(row["tokens/generated"] for row in rows)
        return f"{len(rows)} steps of {seconds:.3g} s, {tokens:.0f} tokens in all"

    def resume(self) -> str:
        """Train three steps of the nano model, once in one go and once stopped by SIGTERM after the first
        step.

        Both must leave the same bytes. The base checkpoint for mathematics solves a quarter of the problems,
        so every step has a gradient.
        """
        settings = ("train.steps=3", "train.save_every=1", "compute_dtype=bfloat16")

        def words(name: str) -> list[str]:
            return ["train", "--env", "math", "--method", "grpo", "--run-dir", str(self.out / name)]

        # Uninterrupted.
        self.report("whole", *words("whole"), settings=settings)

        # Stopped as soon as it has logged a step, then resumed.
        stopped = subprocess.Popen(_command(*words("resumed"), settings=settings), stderr=subprocess.DEVNULL)
        while stopped.poll() is None and not (self.out / "resumed" / "metrics.jsonl").is_file():
            time.sleep(0.02)
        stopped.send_signal(signal.SIGTERM)
        code = stopped.wait()
        self.report("resumed", *words("resumed"), settings=settings)
        if self.digests("whole") == self.digests("resumed"):
            return f"the same weights and result, byte for byte (stopped with exit code {code})"

        # A device may not repeat a run exactly; then resuming cannot either.
        self.report("repeated", *words("repeated"), settings=settings)
        if self.digests("whole") == self.digests("repeated"):
            raise RuntimeError("a resumed run differs from the uninterrupted one, which this device repeats")
        return "other bytes, but so has a second uninterrupted run on this device"

    def digests(self, name: str) -> list[str]:
        """sha256 of a run's last weights and of its result."""
        run_dir = self.out / name
        weights = sorted((run_dir / "checkpoints").glob("*/model.safetensors"))[-1]
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in (weights, run_dir / "result.json")]

    def step(self) -> str:
        """`r3l bench step`: the packed forward pass compared with that of transformers."""
        words = ("bench", "step", *self.cell, "--method", "grpo", "--repeats", "3" if self.model else "1")
        report = self.report("step", *words, settings=self.settings)
        ratio = report["seconds_ratio"]
        return f"{report['seconds']:.3g} s a step; {ratio:.2f} times that with transformers' forward pass"

    def all(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """All checks for this device, with their names."""
        yield "card", self.card
        yield "agreement, float32", lambda: self.agreement("compute_dtype=float32")
        if self.device.type == "cuda":
            yield "agreement, bfloat16", lambda: self.agreement("compute_dtype=bfloat16")
            if find_spec("vllm"):
                yield "agreement, vLLM", lambda: self.agreement("compute_dtype=bfloat16", "compute=vllm")
        yield "resume", self.resume
        yield "R3L trains", lambda: self.training("r3l")
        yield "GRPO trains", lambda: self.training("grpo")
        yield "a step", self.step


def _command(*words: str, settings: tuple[str, ...]) -> list[str]:
    return [sys.executable, "-m", "r3l.cli", *words, *(word for s in settings for word in ("--set", s))]


def main() -> int:
    """Run every check; the exit code."""
    layout = argparse.RawDescriptionHelpFormatter  # keeps the lines of the docstring
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a published model, by name or folder")
    parser.add_argument("--nano", action="store_true", help="use the nano model, on a GPU or a CPU")
    parser.add_argument("--out", type=Path, default=Path("results/gpu_check"))
    options = parser.parse_args()
    if not options.nano and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} finds no GPU; try --nano")
    options.out.mkdir(parents=True, exist_ok=True)
    table = Table("check", "result", "seconds", "what was seen")
    failed = False
    for name, check in Check(None if options.nano else options.model, options.out.absolute()).all():
        began = time.monotonic()
        try:
            seen = check()
            result = "ok"
        except RuntimeError as error:  # a command failed; the other checks still run
            seen = str(error)
            result = "failed"
            failed = True
        table.add_row(name, result, f"{time.monotonic() - began:.0f}", seen)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
