"""Run directories as the engine and the evaluation leave them, with chosen scores."""

from __future__ import annotations

import json
from pathlib import Path

from start_models import start_model

from r3l.config import names
from r3l.config.run import SCHEMA_VERSION
from r3l.evaluation.verification import sign
from r3l.report.table import Table


def write_run(
    root: Path,
    method: str,
    seed: int,
    easy: list[int],
    hard: list[int],
    tier: str = "nano",
    model: str | None = None,
    env: str = "alfworld",
    steps: list[dict[str, float]] | None = None,
    settings: dict[str, float] | None = None,
    rate: float = 3e-4,
    budget: dict[str, float] | None = None,
    attempts: int = 1,
) -> Path:
    """One finished run: a success bit per attempt; returns its evaluation.json.

    ``attempts``: successive bits of one task. ``steps``: lines of metrics in place of the usual ten; ``settings``: of
    the method, in the manifest; ``rate``: the learning rate; ``budget``: counters of the whole training.
    """
    model = model or start_model(env if env in names("envs") else "alfworld")  # else of the user's own
    folder = root / tier / env / model / method / f"seed{seed}"
    folder.mkdir(parents=True)
    common = {
        "schema": SCHEMA_VERSION,
        "cell": f"{tier}/{env}/{model}/{method}",
        "tier": tier,
        "label": f"{tier} (test)",
        "env": env,
        "method": method,
        "method_label": {"r3l": "R3L", "grpo": "GRPO"}.get(method, method),
        "model": model,
        "seed": seed,
        "fingerprint": f"{method}{seed}",
    }
    episodes = [
        {
            "task": f"{group}-{k // attempts}",
            "member": k % attempts,
            "group": group,
            "success": bool(won),
            "reward": float(won),
        }
        | {"stop_reason": "success" if won else "format", "turns": 1, "tokens": 2}
        for group, bits in (("easy", easy), ("hard", hard))
        for k, won in enumerate(bits)
    ]
    groups = {
        name: {"episodes": len(bits), "success": sum(bits) / len(bits), "reward": sum(bits) / len(bits)}
        for name, bits in (("easy", easy), ("hard", hard), ("all", [*easy, *hard]))
        if bits
    }
    usual = [] if method == "zero_shot" else [_step(k, method, seed) for k in range(1, 11)]
    metrics = usual if steps is None else steps
    budget = budget or {
        "rollouts": 640,
        "env_steps": 5000,
        "tokens/generated": 40000 + seed,
        "tokens/trained": 30000,
    }
    evaluation = common | {
        "task_set": {"name": "nano/test", "sha256": "ab" * 32, "tasks": len(episodes) // attempts},
        "episodes": len(episodes),
        "groups": groups,
        "stops": {},
        "temperature": 0.4,
        "checkpoint": {"step": len(metrics), "sha256": None},
        "tokens": {"generated": 100},
    }
    budgets = {
        "train": {"steps": 10, "tasks_per_step": 8, "lr": rate},
        "sampling": {},
        "evaluation": {},
        "env_settings": {},
    }
    manifest = {
        "schema": SCHEMA_VERSION,
        "inputs": {},
        "task_set": dict.fromkeys(("train", "test"), evaluation["task_set"]),
        "fingerprint": common["fingerprint"],
        "run": {
            "profile": "paper",
            "prompts": "compact",
            "samples": "trajectory",
            "method_settings": settings or {},
            **budgets,
        },
        "versions": {},
        "hardware": {},
        "commit": "abc",
    }
    _write(folder / "manifest.json", json.dumps(manifest))
    _write(folder / "episodes.jsonl", "".join(json.dumps(e) + "\n" for e in episodes))
    _write(folder / "metrics.jsonl", "".join(json.dumps(m) + "\n" for m in metrics))
    result = common | {
        "budget": budget if metrics else {},
        "final": {},
        "steps": len(metrics),
        "profile": "paper",
    }
    _write(folder / "result.json", json.dumps(result | {"checkpoint": None, "checkpoint_sha256": None}))
    _write(folder / "evaluation.json", json.dumps(evaluation))
    sign(folder)
    return folder / "evaluation.json"


def _step(k: int, method: str, seed: int) -> dict[str, float]:
    solved = min(100, 10 + 5 * k + 2 * seed)  # of a hundred
    row = {"step": k, "rollouts": 100, "stop/success": solved, "train/success": solved / 100}
    row["tokens/generated"] = 4000 + 100 * seed
    row["groups/policy"] = 8
    if method == "r3l":
        row |= {"reflection/count": 32, "reflection/valid": 20 + k, "retry/count": 16}
        row |= {"retry/success": k, "retry/improved": k // 2, "tokens/generated": 6000}
        row |= {"rollouts": 116, "stop/success": solved + k}
    return row


def rewrite(path: Path, text: str) -> None:
    """Change a file of a run, and sign the run again."""
    _write(path, text)
    sign(path.parent)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def write_three_seeds(root: Path) -> Path:
    """zero_shot, GRPO and R3L with three seeds each; easy scores of R3L are 2/4, 3/4, 4/4."""
    for seed in range(3):
        write_run(root, "zero_shot", seed, [1, 0, 0, 0], [0, 0, 0, 0])
        write_run(root, "grpo", seed, [1, 1, 0, 0], [0, 0, 0, seed % 2])
        write_run(root, "r3l", seed, [1, 1, int(seed > 0), int(seed > 1)], [1, 0, 0, 0])
    return root


def best(table: Table, section: str, column: str) -> set[str]:
    """The names of the rows of ``section`` that are marked as best in ``column``."""
    return {name for name, row in table.section(section).items() if row[column].bold}
