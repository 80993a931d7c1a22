"""A run's last checkpoint with its model card, as a folder or on the Hugging Face hub."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
import huggingface_hub
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]  # not in its __all__

from r3l.core.errors import ConfigError, DataError
from r3l.evaluation.evaluate import checkpoint_of
from r3l.evaluation.model_card import CARD, model_card
from r3l.evaluation.verification import check_signed
from r3l.files.digests import SUMS
from r3l.files.json_files import read_json
from r3l.files.writing import write_text_atomic
from r3l.local.checkpoint import OPTIMIZER, SAMPLER, STATE
from r3l.runs.run_dir import RESULT

HUB = "hub:"
RESUMING = {OPTIMIZER, SAMPLER, STATE, SUMS}  # what only the run itself needs


def is_target(name: str) -> bool:
    """Whether ``--to`` names a place for a model: a folder, whose path has a slash, or ``hub:OWNER/NAME``."""
    return name.startswith(HUB) or "/" in name


def publish(run_dir: Path, target: str, dry_run: bool = False) -> list[str]:
    """Put a run's model at ``target``; the files, which a dry run only names.

    Raises DataError where the run has no checkpoint or is not evaluated, ConfigError for a target that cannot be.
    """
    checkpoint = _checkpoint(run_dir)
    card = model_card(run_dir)
    names = sorted(path.name for path in checkpoint.iterdir() if path.name not in RESUMING | {CARD})
    repository = target.removeprefix(HUB)
    if target.startswith(HUB):
        _check(repository)
    elif Path(target).exists():
        raise ConfigError(f"{target} is there already; name a folder that is not, or delete it")
    if not dry_run and target.startswith(HUB):
        _upload(checkpoint, names, card, repository)
    elif not dry_run:
        _write(checkpoint, names, card, Path(target))
    return [CARD, *names]


def _checkpoint(run_dir: Path) -> Path:
    check_signed(run_dir)
    result = read_json(run_dir / RESULT)
    if not result["checkpoint"] or not (run_dir / "checkpoints").is_dir():
        raise DataError(
            f"{run_dir} has no checkpoint: stored runs are kept without, and a model behind a server has none. "
            "Train it again with r3l train, then export that run"
        )
    return Path(str(checkpoint_of(run_dir)))


def _check(repository: str) -> None:
    try:
        validate_repo_id(repository)
    except ValueError as error:
        raise ConfigError(f"{HUB}{repository} is no place on the hub: {error}") from error
    if "/" not in repository:
        raise ConfigError(f"{HUB}{repository} names no owner; it must be {HUB}OWNER/NAME")


def _write(checkpoint: Path, names: list[str], card: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in names:
        shutil.copy(checkpoint / name, folder / name)
    write_text_atomic(folder / CARD, card)


def _upload(checkpoint: Path, names: list[str], card: str, repository: str) -> None:
    with TemporaryDirectory() as folder:
        _write(checkpoint, names, card, Path(folder) / "model")
        api = huggingface_hub.HfApi()
        try:
            api.create_repo(repository, exist_ok=True, private=True)  # its owner makes it public
            api.upload_folder(repo_id=repository, folder_path=Path(folder) / "model")
        except (OSError, httpx2.TransportError, huggingface_hub.errors.HfHubHTTPError) as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"{HUB}{repository} was not written: {reason}. `hf auth login` signs in") from error
