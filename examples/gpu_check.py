"""Check on a GPU what this project was tested for on CPUs; prints one table, exit code 1 if a check fails.

    python examples/gpu_check.py         # Qwen2.5-Coder-0.5B (r3l model fetch qwen2.5-coder-0.5b) on word problems
    python examples/gpu_check.py --nano  # the same commands with the nano model, on a GPU or a CPU

Each check runs `r3l` as a user does: log-probabilities of sampling and training agree (float32, bfloat16, vLLM), a
stopped run resumes to the same bytes, R3L and GRPO train a few steps, a step is timed. Output is kept in --out.
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

# Small steps, of templated word problems, which need no download.
PUBLISHED = ("train.tasks_per_step=8", "env_settings.max_turns=1", "env_settings.options.attempts=1")
PUBLISHED += ("sampling.max_context=2048", "train.tokens_per_microbatch=8192")
NANO = ("train.tasks_per_step=2", "method_settings.group_size=4")


class Check:
    """The checks of one device, with a published ``model`` or the nano model. ``out``: where runs and logs go."""

    def __init__(self, model: str | None, out: Path) -> None:
        self.model, self.out = model, out
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.cell = ("--tier", "smol", "--env", "math", "--model", model) if model else ("--env", "math")
        self.settings = PUBLISHED if model else NANO

    def report(self, name: str, *words: str, settings: tuple[str, ...] = ()) -> dict[str, Any]:
        """What `r3l WORDS --json` prints. Raises RuntimeError with the end of its log."""
        log = self.out / f"{name}.log"
        with log.open("w") as errors:
            command = _command(*words, "--json", settings=settings)
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"exit code {done.returncode}: {' '.join(log.read_text().split())[-300:]} ({log})")
        return dict(json.loads(done.stdout))

    def card(self) -> str:
        """Which device, and the rate of its matrix products."""
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"
        return f"{name}, {matrix_rate_of(self.device, torch.float32) / 1e12:.3g} TFLOP/s in float32"

    def agreement(self, *settings: str) -> str:
        """`r3l doctor step`: fails if sampling and training disagree, or memory does not suffice."""
        words = ("doctor", "step", *self.cell, "--method", "r3l")
        report = self.report("-".join(("agreement", *settings)), *words, settings=(*self.settings, *settings))
        gap, most = report["logprob_mismatch/mean"], report["logprob_mismatch/max"]
        peak = f", {report['peak_gib']:.1f} GiB at most" if report["peak_gib"] else ""
        return f"{gap:.2g} nats in the mean, {most:.2g} at most over {report['tokens']} tokens{peak}"

    def training(self, method: str) -> str:
        """A few steps, and what they took."""
        settings, run_dir = (*self.settings, f"train.steps={10 if self.model else 2}"), str(self.out / method)
        self.report(f"train-{method}", "train", *self.cell, "--method", method, "--run-dir", run_dir, settings=settings)
        rows = [json.loads(line) for line in (self.out / method / "metrics.jsonl").read_text().splitlines()]
        seconds = sum(row["seconds/collect"] + row["seconds/train"] for row in rows) / len(rows)
        return f"{len(rows)} steps of {seconds:.3g} s, {sum(row['tokens/generated'] for row in rows):.0f} tokens in all"

    def resume(self) -> str:
        """Three steps of the nano model, in one go and stopped after the first by SIGTERM: the same bytes.

        On mathematics its base checkpoint solves a quarter of the problems, so every step has a gradient.
        """
        settings = ("train.steps=3", "train.save_every=1", "compute_dtype=bfloat16")

        def words(name: str) -> list[str]:
            return ["train", "--env", "math", "--method", "grpo", "--run-dir", str(self.out / name)]

        self.report("whole", *words("whole"), settings=settings)
        stopped = subprocess.Popen(_command(*words("resumed"), settings=settings), stderr=subprocess.DEVNULL)
        while stopped.poll() is None and not (self.out / "resumed" / "metrics.jsonl").is_file():
            time.sleep(0.02)
        stopped.send_signal(signal.SIGTERM)
        code = stopped.wait()
        self.report("resumed", *words("resumed"), settings=settings)
        if self.digests("whole") == self.digests("resumed"):
            return f"the same weights and result, byte for byte (stopped with exit code {code})"
        self.report("repeated", *words("repeated"), settings=settings)
        if self.digests("whole") == self.digests("repeated"):
            raise RuntimeError("a resumed run differs from the uninterrupted one, which this device repeats exactly")
        return "other bytes, but so has a second uninterrupted run on this device"

    def digests(self, name: str) -> list[str]:
        """Of a run's last weights and result."""
        (*_, weights) = sorted((self.out / name / "checkpoints").glob("*/model.safetensors"))
        return [hashlib.sha256(path.read_bytes()).hexdigest() for path in (weights, self.out / name / "result.json")]

    def step(self) -> str:
        """`r3l bench step`: the packed pass beside that of transformers."""
        words = ("bench", "step", *self.cell, "--method", "grpo", "--repeats", "3" if self.model else "1")
        report = self.report("step", *words, settings=self.settings)
        return f"{report['seconds']:.3g} s a step; by transformers' pass {report['seconds_ratio']:.2f} times that"

    def all(self) -> Iterator[tuple[str, Callable[[], str]]]:
        """Checks by their names."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b", help="a published model, by name or folder")
    parser.add_argument("--nano", action="store_true", help="the nano model instead, on whatever device there is")
    parser.add_argument("--out", type=Path, default=Path("results/gpu_check"))
    options = parser.parse_args()
    if not options.nano and not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} finds no GPU; try --nano")
    options.out.mkdir(parents=True, exist_ok=True)
    table, failed = Table("check", "result", "seconds", "what was seen"), 0
    for name, check in Check(None if options.nano else options.model, options.out.absolute()).all():
        began = time.monotonic()
        try:
            result, seen = "ok", check()
        except RuntimeError as error:  # a command failed; the other checks still run
            result, seen, failed = "failed", str(error), failed + 1
        table.add_row(name, result, f"{time.monotonic() - began:.0f}", seen)
    Console(width=None if sys.stdout.isatty() else 150).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
