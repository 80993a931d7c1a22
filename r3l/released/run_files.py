"""The YAML files of the R3L release: which of our methods, environments and models each is about."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from r3l.files.yaml_files import read_yaml

FOLDER = "examples/R3L"
ENVIRONMENTS = {name: name for name in ("alfworld", "webshop", "scienceworld", "dapo", "gsm8k")} | {"math": "math500"}
METHODS = {  # by the name of a file, and of a step-level one after its "step_"
    "opmd_R3L": "r3l",
    "opmd_R3L_w_o_credit": "r3l_no_credit",
    "opmd_R3L_w_o_reweight": "r3l_no_amplification",
    "opmd_reweight_adv": "r3l_no_reflection",
    "grpo_reweight_adv": "grpo_amplified",
    "RAFT": "raft",
} | {name: name for name in ("opmd", "grpo", "gspo", "dapo", "reflect_grpo", "critique_grpo")}
BY_ALGORITHM = {  # a workflow that several algorithms share: the algorithm (or policy loss) of each method
    "R3L": {"opmd_reweight_adv": "r3l", "opmd": "r3l_no_amplification", "step_opmd_reweight_adv": "r3l"},
    "opmd_baseline": {"opmd": "opmd", "opmd_reweight_adv": "r3l_no_reflection"},
    "grpo_baseline": {"grpo": "grpo", "grpo_reweight_adv": "grpo_amplified", "gspo": "gspo"},
}
ONE_METHOD = {"raft_baseline": "raft", "raft": "raft", "R3L_w_o_credit": "r3l_no_credit"} | {
    name: name for name in ("opmd", "grpo", "gspo", "dapo", "reflect_grpo", "critique_grpo")
}

_FILE = re.compile(r"(?P<step>step_)?(?P<method>\w+?)(?P<boxed>_qwen)?_(?P<size>[\d.]+B)(?:_experiment)?$")
_VARIABLE = re.compile(r"\$\{oc\.env:\w+,(.*)\}")


@dataclass(frozen=True)
class RunFile:
    """One file. ``env`` and ``method`` are ours, by its place and name; None for what this project does not have."""

    path: str
    env: str | None
    method: str | None
    content: dict[str, Any]

    @property
    def hub(self) -> str:
        """The model, where no variable says otherwise."""
        return str(plain(self.content["model"]["model_path"]))

    @property
    def boxed(self) -> bool:
        """Whether it asks for a boxed answer, as Qwen's own mathematics prompt does."""
        return "_qwen_math_" in self.content["buffer"]["explorer_input"]["default_workflow_type"]

    @property
    def named_method(self) -> str:
        """Our method by what the file runs: its workflow and algorithm, not its name."""
        workflow = str(self.content["buffer"]["explorer_input"]["default_workflow_type"]).removesuffix("_workflow")
        algorithm = self.content["algorithm"]
        credit = "_w_o_credit" if workflow.endswith("_w_o_credit") else ""
        kind = workflow.removeprefix("step_").removesuffix(credit)
        for env in ("qwen_math", *ENVIRONMENTS, "countdown"):
            kind = kind.removesuffix(f"_{env}")
        loss = algorithm.get("policy_loss_fn")
        known = BY_ALGORITHM.get(f"{kind}{credit}", {})
        name = known.get("gspo" if loss == "gspo" else algorithm["algorithm_type"])
        return name or ONE_METHOD.get(f"{kind}{credit}", f"{workflow} with {algorithm['algorithm_type']}")


def run_files(clone: Path) -> Iterator[RunFile]:
    """All of them, in order. Raises ConfigError for one that is no configuration."""
    for path in sorted((clone / FOLDER).rglob("*.yaml")):
        match = _FILE.match(path.stem)
        method = METHODS.get(match["method"]) if match else None
        content = read_yaml(path)
        yield RunFile(str(path.relative_to(clone)), ENVIRONMENTS.get(path.parent.name), method, content)


def leaves(content: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key, dotted, with its value; items of lists by number."""
    if isinstance(content, dict | list):
        for key, value in content.items() if isinstance(content, dict) else enumerate(content):
            yield from leaves(value, f"{prefix}{key}.")
    else:
        yield prefix.removesuffix("."), plain(content)


def plain(value: Any) -> Any:
    """A value as Trinity reads it: a variable's default, and ``1e-6``, which YAML takes for text, as a number."""
    if not isinstance(value, str):
        return value
    if match := _VARIABLE.match(value):
        return match[1]
    try:
        return float(value)
    except ValueError:
        return value
