"""The model card of a run's checkpoint, in Hugging Face's form: how it was made, what it scores, its limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from r3l.config import find_model
from r3l.evaluation.statistics import wilson_interval
from r3l.files.json_files import read_json, read_jsonl

CARD = "README.md"
BUDGET = {
    "rollouts": "attempts, retries among them",
    "env_steps": "steps of environments",
    "tokens/generated": "tokens generated",
    "tokens/trained": "tokens trained on",
}
LIMITS = """- One training seed. The intervals say how well so many tasks measure this model, not what another seed
  would give.
- Only the test tasks above were measured. The model was trained for this environment and its prompts; it was not
  tested, nor made safe, for anything else."""


def model_card(run_dir: Path) -> str:
    """The card of an evaluated run, from its manifest, result and episodes."""
    manifest, evaluation = read_json(run_dir / "manifest.json"), read_json(run_dir / "evaluation.json")
    episodes = read_jsonl(run_dir / "episodes.jsonl")
    title = f"{evaluation['method_label']} on {evaluation['env']}, seed {evaluation['seed']}"
    parts = {
        "": f"`{evaluation['cell']}`, tier {evaluation['label']}.",
        "Training": _training(manifest, read_json(run_dir / "result.json")),
        "Scores": _scores(evaluation, episodes),
        "Limits": LIMITS,
        "Use": 'Folder in Hugging Face layout: `AutoModelForCausalLM.from_pretrained("FOLDER")`, or\n'
        f"`r3l evaluate {evaluation['env']} --model FOLDER`.",
        "Cite": "R3L: [arXiv 2601.03715](https://arxiv.org/abs/2601.03715). Made with r3l, which reproduces it.",
    }
    sections = [f"## {name}\n\n{text}" if name else f"# {title}\n\n{text}" for name, text in parts.items()]
    return f"---\n{_header(manifest['run'])}---\n\n" + "\n\n".join(sections) + "\n"


def _header(run: Mapping[str, Any]) -> str:
    """What the hub reads: library, task, tags, start model."""
    known = find_model(Path(run["model"]).name)
    header: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": sorted({"r3l", "reinforcement-learning", run["env"], run["method"].partition("@")[0]}),
    }
    if known:
        header["base_model"] = known.hub
    text: str = yaml.safe_dump(header, sort_keys=False)
    return text


def _training(manifest: Mapping[str, Any], result: Mapping[str, Any]) -> str:
    run, train = manifest["run"], manifest["task_set"]["train"]
    rows = {
        "method": f"`{run['method']}`, profile {run['profile']}",
        "start model": f"`{Path(run['model']).name}`",
        "tasks": f"{train['tasks']} of `{train['name']}`, sha256 `{train['sha256'][:12]}`",
        "updates": f"{result['steps']}, of {run['train']['tasks_per_step']} tasks",
        "learning rate": f"{run['train']['lr']:g}",
        **{label: f"{result['budget'][key]:,.0f}" for key, label in BUDGET.items() if key in result["budget"]},
        "hardware": ", ".join(f"{value} {key}" for key, value in manifest["hardware"].items() if value),
        "code": f"commit `{manifest['commit']}`, configuration `{manifest['fingerprint']}`",
        "weights": f"sha256 `{result['checkpoint_sha256']}`",
    }
    return "| | |\n|---|---|\n" + "\n".join(f"| {key} | {value} |" for key, value in rows.items())


def _scores(evaluation: Mapping[str, Any], episodes: list[dict[str, Any]]) -> str:
    tasks = evaluation["task_set"]
    head = (
        f"Test tasks `{tasks['name']}` (sha256 `{tasks['sha256'][:12]}`), temperature {evaluation['temperature']:g}, "
        "95 % intervals of Wilson over episodes.\n\n| tasks | episodes | success | interval | mean reward |\n"
        "|---|---|---|---|---|\n"
    )
    return head + "\n".join(_score(name, group, episodes) for name, group in evaluation["groups"].items())


def _score(name: str, group: Mapping[str, Any], episodes: list[dict[str, Any]]) -> str:
    found = wilson_interval([float(e["success"]) for e in episodes if name in ("all", e["group"])])
    return (
        f"| {name} | {group['episodes']} | {found.mean:.3f} | {found.low:.3f} to {found.high:.3f} "
        f"| {group['reward']:.3f} |"
    )
