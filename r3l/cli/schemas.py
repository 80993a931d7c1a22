"""JSON Schemas of the configuration files, for editors; made from the pydantic models that validate them.

``python -m r3l.cli.schemas`` writes them to configs/schemas/, which git ignores.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from r3l.config import EnvConfig, MethodConfig, ModelConfig, TierConfig
from r3l.files.paths import CONFIGS
from r3l.files.writing import write_json_atomic
from r3l.sft.recipe import SFTConfig
from r3l.workflow.plan import TableConfig, WorkflowConfig
from r3l.workflow.resources import ResourceConfig

MODELS: dict[str, type[BaseModel]] = {
    "tier": TierConfig,
    "env": EnvConfig,
    "method": MethodConfig,
    "model": ModelConfig,
    "table": TableConfig,
    "sft": SFTConfig,
    "workflow": WorkflowConfig,
    "resources": ResourceConfig,
}


def schemas() -> dict[str, dict[str, Any]]:
    """File stem -> schema."""
    return {name: model.model_json_schema() for name, model in MODELS.items()}


if __name__ == "__main__":
    for stem, schema in schemas().items():
        write_json_atomic(CONFIGS / "schemas" / f"{stem}.json", schema)
