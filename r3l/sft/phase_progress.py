"""An unfinished phase of SFT: what is stored beside its weights so that it goes on after its last saved step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from r3l.config.sft_recipe import ExampleKind
from r3l.sft.examples import SFTExample

FILE = "progress.safetensors"
Examples = Mapping[ExampleKind, Sequence[SFTExample]]


@dataclass
class PhaseProgress:
    """The examples of a phase by kind, the loss (nats) of each step so far, and the optimiser's state.

    ``optimizer``: as r3l.local.checkpoint.optimizer_state returns it; empty before the first step.
    """

    examples: Examples
    losses: list[float] = field(default_factory=list)
    optimizer: dict[str, torch.Tensor] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """What :meth:`save` wrote into ``folder``; None if that is the checkpoint of a finished phase."""
        if not (folder / FILE).is_file():
            return None
        tensors = load_file(folder / FILE)
        examples = {}
        for kind in ExampleKind:
            ids, weight, lengths = (
                tensors.pop(f"{kind}.{part}").numpy() for part in ("ids", "weight", "lengths")
            )
            ends = np.cumsum(lengths)[:-1]
            pairs = zip(np.split(ids, ends), np.split(weight, ends), strict=True) if len(lengths) else ()
            examples[kind] = [SFTExample(*pair) for pair in pairs]
        losses = tensors.pop("losses").tolist()
        return cls(examples, losses, tensors)

    def save(self, folder: Path) -> None:
        """Write the progress into the existing ``folder``."""
        tensors = {**self.optimizer, "losses": torch.tensor(self.losses, dtype=torch.float64)}
        for kind in ExampleKind:
            of_kind = self.examples[kind]
            # Joined, since thousands of short tensors would take longer to read than to sample again.
            ids = np.concatenate([np.zeros(0, dtype=np.int32), *(example.ids for example in of_kind)])
            weight = np.concatenate([np.zeros(0, dtype=np.float32), *(example.weight for example in of_kind)])
            lengths = np.array([len(example.ids) for example in of_kind], dtype=np.int64)
            for part, values in (("ids", ids), ("weight", weight), ("lengths", lengths)):
                tensors[f"{kind}.{part}"] = torch.from_numpy(values)
        save_file(tensors, folder / FILE)
