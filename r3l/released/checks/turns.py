"""Turn samples: which turns of a base and of its retry train, when a retry starts at a pivot."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from r3l.core.seeds import generator
from r3l.original.clones import R3L
from r3l.released.check import Case, Check, Code, Namespace, Value

PATH = "trinity/common/workflows/envs/R3L/alfworld/step_R3L_workflow.py"
METHODS = ("run", "_run_retry_distill_from_pivot", "_run_retry_from_pivot")
CASES = 2000  # our choice
MODEL = "qwen3-4b"  # whose samples are turns
LIMIT = 12  # turns of an episode in these cases


def cases() -> Iterator[Case]:
    """Bases of 1 to 8 turns, a pivot in them, and retries that win or lose after 1 to 4 turns of their own."""
    for k in range(CASES):
        draw = generator("turns", k)
        turns = int(draw.integers(1, 9))
        yield {
            "turns": turns,
            "pivot": int(draw.integers(0, turns)),
            "retried": int(draw.integers(1, 5)),
            "reward": float(draw.integers(0, 2)),
            "retry_reward": float(draw.integers(0, 2)),
        }


def theirs(released: Namespace, case: Case) -> Value:
    """The samples of one base and its retry, from the released workflow on a made-up game."""
    released["utils"] = SimpleNamespace(
        validate_reflect_report=lambda report, turns: (True, False),
        reflect_report_to_guidance_prompt=str,
        create_alfworld_environment=lambda file: Game(),
        extract_task_description=str,
        parse_response=lambda response: (response, response, None),
    )
    workflow = Workflow(case)
    for name in METHODS[1:]:
        setattr(workflow, name, released[name].__get__(workflow))
    samples = [s for s in released["run"](workflow) if s.eid.task == "t_explore"]
    trained: dict[str, list[int]] = {"base": [], "retry": []}
    for sample in samples:
        if sample.action_mask.any():
            trained["retry" if sample.metrics["is_retry_rollout"] else "base"].append(sample.eid.step)
    return trained


def ours(case: Case) -> Value:
    """Under the profile, for a model whose samples are turns."""
    from r3l.config import build_method, resolve
    from r3l.core.trajectory import Trajectory, TrajectoryKind
    from r3l.credit import assign_pivotal_credit
    from r3l.released.ours import PROFILE, TASK

    run = resolve("paper", "alfworld", f"r3l@profile={PROFILE}", 0, MODEL)
    settings: Any = build_method(run).settings  # type: ignore[attr-defined]
    kind = TrajectoryKind.GUIDED_RETRY if settings.train_on == "guided" else TrajectoryKind.DISTILLED
    lengths = {"base": case["turns"], "retry": case["pivot"] + case["retried"]}
    trained = {}
    for name, turns in lengths.items():
        trajectory = Trajectory(TASK, 0, TrajectoryKind.BASE if name == "base" else kind, [None] * turns)  # type: ignore[list-item]
        assign_pivotal_credit(trajectory, case["pivot"], settings)
        trained[name] = [k for k in range(turns) if trajectory.trains(k)]
    return trained


class Game:
    """A game that nothing ends."""

    def reset(self) -> tuple[str, dict[str, Any]]:
        """An observation and what comes with it."""
        return "", {}

    def step(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        """Observation, reward, whether it ended, what comes with it."""
        return "", 0.0, False, {}

    def close(self) -> None:
        """Nothing is held."""


class Workflow:
    """What the released methods ask of their workflow; its rollouts have the lengths and rewards of a case."""

    def __init__(self, case: Case) -> None:
        import torch

        self.is_eval, self.run_id_base, self.n, self.env = False, 0, 2, None
        self.task, self.game_file_path, self.max_env_steps = SimpleNamespace(task_id="t"), "", LIMIT
        self.alfworld_system_template = SimpleNamespace(render=str)
        self.model = SimpleNamespace(extract_experience_from_history=lambda: [self._sample(0)])
        self.final_reward, self.memory, self._case = 0.0, list[dict[str, str]](), case
        self._mask = torch.ones(1)

    def _sample(self, step: int) -> SimpleNamespace:
        place = SimpleNamespace(step=step, run=0, task="")
        return SimpleNamespace(
            eid=place, action_mask=self._mask, metrics={}, tokens=[0, 0], prompt_length=1, reward=0.0
        )

    def _run_single_rollout(self, run_id: int) -> list[SimpleNamespace]:
        roles = ("user", "assistant") * self._case["turns"]
        self.memory = [{"role": role, "content": "x"} for role in ("system", *roles)]
        self.final_reward = self._case["reward"]
        return [self._sample(step) for step in range(self._case["turns"])]

    def _get_reflect(self, trajectory: object) -> tuple[dict[str, int], str, SimpleNamespace, float]:
        return {"retry_from_step": self._case["pivot"]}, "", self._sample(0), 1.0

    def step(self, step_num: int) -> bool:
        """A turn of a retry; whether another follows."""
        self.final_reward = self._case["retry_reward"]
        return bool(step_num + 1 < self._case["pivot"] + self._case["retried"])


_CODE = Code(PATH, tuple(f"StepLevelR3LAlfworldWorkflow.{name}" for name in METHODS))
CHECKS = (Check("turns", "alfworld", R3L, (_CODE,), cases, theirs, ours),)
