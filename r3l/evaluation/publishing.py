"""Export of a run's last checkpoint with a model card, to a folder or to the Hugging Face hub."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
import huggingface_hub
import yaml
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # not in its __all__

from r3l.config import find_model
from r3l.config.fingerprint_inputs import MODEL_FILES
from r3l.core.errors import ConfigError, DataError, first_line
from r3l.evaluation.episodes import EpisodeRow, Evaluation
from r3l.evaluation.evaluate import (
    TRAINED_ON,
    TrainedOn,
    check_has_checkpoint,
    checkpoint_of,
    trained_on,
)
from r3l.evaluation.summary import caveats
from r3l.evaluation.verification import check_signed
from r3l.files.digests import SUMS
from r3l.files.json_files import read_json, read_jsonl
from r3l.files.writing import replacing, write_json_atomic, write_text_atomic
from r3l.local.checkpoint import OPTIMIZER, SAMPLER, STATE
from r3l.local.session import merged_model
from r3l.runs.manifest import Manifest, run_of
from r3l.runs.result import Result
from r3l.runs.run_dir import EPISODES, EVALUATION, MANIFEST, RESULT
from r3l.stats.intervals import task_interval

HUB = "hub:"
CARD = "README.md"
RESUMING = {OPTIMIZER, SAMPLER, STATE, SUMS}  # files that only the run itself needs
BUDGET = {
    "rollouts": "attempts, retries included",
    "env_steps": "environment steps",
    "tokens/generated": "tokens generated",
    "tokens/trained": "tokens trained on",
}
PAGE = """---
{header}---

# {method_label} on {env}, seed {seed}

`{cell}`, tier {label}.

## Training

| | |
|---|---|
{training}

## Scores

Test tasks `{task_set[name]}` (sha256 `{task_set[sha256]:.12}`), temperature {temperature:g}, 95 %
intervals over tasks.

| tasks | episodes | success | interval | mean reward |
|---|---|---|---|---|
{scores}

## Limits

{caveats}- One training seed. The intervals say how well so many tasks measure this model, not what another
  seed would give.
- Only the test tasks above were measured. The model was trained for this environment and its prompts; it
  was not tested, nor made safe, for anything else.

## Use

Folder in Hugging Face layout: `AutoModelForCausalLM.from_pretrained("FOLDER")`, or
`r3l evaluate {env} --tier {tier} --model FOLDER`.

## Cite

R3L: [arXiv 2601.03715](https://arxiv.org/abs/2601.03715). Made with r3l, which reproduces it.
"""


def is_target(name: str) -> bool:
    """True if ``name`` has the form of a destination: a folder's path with a slash, or ``hub:OWNER/NAME``."""
    return name.startswith(HUB) or "/" in name


def publish(run_dir: Path, target: str, dry_run: bool = False) -> list[str]:
    """Copy a run's last checkpoint with a model card to ``target``; return the names of the files there.

    ``target``: a folder that does not exist yet, or ``hub:OWNER/NAME``; a new repository is private. Files
    for resuming are left out, a LoRA adapter is merged. With ``dry_run`` nothing is written. Raises DataError
    if a server played the run, it is not evaluated or has changed files, CheckpointError if it has no
    checkpoint or its weights are not the ones in its result, ConfigError for an invalid target or if the hub
    refuses, RunDirectoryError if the folder cannot be written; then nothing of it is left.
    """
    check_signed(run_dir)
    result = read_json(run_dir / RESULT, Result)
    check_has_checkpoint(run_dir)
    if not result["checkpoint_sha256"]:
        raise DataError(f"{run_dir} has no checkpoint: a model behind a server played it")
    repository = target.removeprefix(HUB)
    if target.startswith(HUB):
        try:
            validate_repo_id(repository)
        except ValueError as error:
            raise ConfigError(f"{target} is not a place on the hub: {error}") from error
        if "/" not in repository:
            raise ConfigError(f"{target} names no owner; it must be {HUB}OWNER/NAME")
    elif Path(target).exists():
        raise ConfigError(f"{target} is there already; name a folder that is not, or delete it")

    checkpoint = str(checkpoint_of(run_dir))
    folder = Path(checkpoint)
    if not folder.is_dir():  # a base checkpoint on the hub, in its cache
        folder = Path(huggingface_hub.snapshot_download(checkpoint, allow_patterns=list(MODEL_FILES)))
    run = run_of(run_dir)
    with merged_model(run, folder) as model:
        card = model_card(run_dir)
        record: TrainedOn = {"task_sets": {}}
        for env, task_set in trained_on(run):
            record["task_sets"].setdefault(env, []).append(task_set)
        files = {path.name for path in model.iterdir() if path.is_file()}
        names = sorted(files - RESUMING - {CARD, TRAINED_ON})
        if not dry_run and target.startswith(HUB):
            _upload(model, names, card, record, repository)
        elif not dry_run:
            _write(model, names, card, record, Path(target))
    return [CARD, *names, TRAINED_ON]


def _write(checkpoint: Path, names: list[str], card: str, record: TrainedOn, folder: Path) -> None:
    """Write ``folder`` at once; if that fails, nothing of it is left."""
    with replacing(folder) as temporary:
        for name in names:
            shutil.copy(checkpoint / name, temporary / name)
        write_text_atomic(temporary / CARD, card)
        write_json_atomic(temporary / TRAINED_ON, record)


def _upload(checkpoint: Path, names: list[str], card: str, record: TrainedOn, repository: str) -> None:
    """Upload to a private repository of the hub.

    Raises ConfigError if the hub refuses or cannot be reached.
    """
    with TemporaryDirectory() as folder:
        _write(checkpoint, names, card, record, Path(folder) / "model")
        api = huggingface_hub.HfApi()
        try:
            api.create_repo(repository, exist_ok=True, private=True)  # its owner makes it public
            api.upload_folder(repo_id=repository, folder_path=Path(folder) / "model")
        except (OSError, httpx2.TransportError, huggingface_hub.errors.HfHubHTTPError) as error:
            raise ConfigError(
                f"{HUB}{repository} was not written: {first_line(error)}. `hf auth login` signs in"
            ) from error


def model_card(run_dir: Path) -> str:
    """The model card of an evaluated run: Markdown with a YAML header, as the Hugging Face hub reads it.

    It is made from the run's manifest, result, evaluation and episodes; nothing is written.
    """
    manifest = read_json(run_dir / MANIFEST, Manifest)
    evaluation = read_json(run_dir / EVALUATION, Evaluation)
    result = read_json(run_dir / RESULT, Result)
    run: Mapping[str, Any] = manifest["run"]

    # The header is YAML that the hub reads.
    known = find_model(Path(run["model"]).name)
    header = {
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "tags": sorted({"r3l", "reinforcement-learning", run["env"], run["method"].partition("@")[0]}),
    }
    if known:
        header["base_model"] = known.hub

    # The tables of training and of scores.
    training = {
        "method": f"`{run['method']}`, profile {run['profile']}",
        "base checkpoint": f"`{Path(run['model']).name}`",
    }
    train = manifest["task_set"].get("train")
    if train:
        training["tasks"] = f"{train['tasks']} of `{train['name']}`, sha256 `{train['sha256'][:12]}`"
    training["updates"] = f"{result['steps']}, of {run['train']['tasks_per_step']} tasks"
    training["learning rate"] = f"{run['train']['lr']:g}"
    for key, label in BUDGET.items():
        if key in result["budget"]:
            training[label] = f"{result['budget'][key]:,.0f}"
    hardware = [f"{value} {key}" for key, value in manifest["hardware"].items() if value]
    training["hardware"] = ", ".join(hardware)
    training["code"] = f"commit `{manifest['commit']}`, configuration `{manifest['fingerprint']}`"
    training["weights"] = f"sha256 `{result['checkpoint_sha256']}`"
    # Attempts at one task are not independent, so intervals are over tasks.
    outcomes: dict[str, dict[str, list[bool]]] = defaultdict(lambda: defaultdict(list))  # by group and task
    for episode in read_jsonl(run_dir / EPISODES, EpisodeRow):
        for name in (episode["group"], "all"):
            outcomes[name][episode["task"]].append(episode["success"])
    scores = []
    for name, group in evaluation["groups"].items():
        found = task_interval([fmean(attempts) for attempts in outcomes[name].values()])
        bounds = "none" if found.low is None else f"{found.low:.3f} to {found.high:.3f}"
        scores.append(
            f"| {name} | {group['episodes']} | {group['success']:.3f} | {bounds} | {group['reward']:.3f} |"
        )
    return PAGE.format(
        header=yaml.safe_dump(header, sort_keys=False),
        training="\n".join(f"| {key} | {value} |" for key, value in training.items()),
        scores="\n".join(scores),
        caveats="".join(f"- {line}.\n" for line in caveats(evaluation)),
        **evaluation,
    )
