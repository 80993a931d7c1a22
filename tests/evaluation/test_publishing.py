"""A run's model goes out with a card that says what the run says, and nothing that only resuming needs."""

import resource
import shutil

import huggingface_hub
import pytest
import yaml
from transformers import AutoModelForCausalLM

from r3l.core.errors import CheckpointError, ConfigError, DataError, RunDirectoryError
from r3l.evaluation.publishing import model_card, publish
from r3l.files.digests import digest_with_names, write_digests
from r3l.files.json_files import read_json, read_jsonl, rewrite_jsonl, stored_variants
from r3l.files.paths import STORED, STORED_MODELS
from r3l.files.writing import write_json_atomic
from r3l.runs.run_paths import find_runs

STORED_RUN = next(path.parent for path in find_runs(STORED) if path.parent.parent.name == "r3l")
MODEL = next(path for path in sorted(STORED_MODELS.iterdir()) if (path / "model.safetensors").is_file())
LOADED = {"README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}


@pytest.fixture
def run_dir(tmp_path):
    """A stored run, with a base checkpoint in place of the checkpoint that stored runs are kept without."""
    folder = tmp_path / "seed0"
    shutil.copytree(STORED_RUN, folder)
    result = read_json(folder / "result.json")
    checkpoint = folder / result["checkpoint"]
    shutil.copytree(MODEL, checkpoint)
    for name in ("optimizer.safetensors", "trainer.json"):
        (checkpoint / name).write_text("for resuming")
    write_json_atomic(folder / "result.json", result | {"checkpoint_sha256": digest_with_names(checkpoint)})
    write_digests(folder)
    return folder


def test_the_card_says_what_the_run_says():
    card = model_card(STORED_RUN)
    # A checkpoint of this project plays the tier that it was trained for; the usual protocol is the paper's.
    assert "`r3l evaluate alfworld --tier nano --model FOLDER`" in card
    _, header, text = card.split("---\n", 2)
    evaluation, result = (read_json(STORED_RUN / f"{name}.json") for name in ("evaluation", "result"))
    assert yaml.safe_load(header)["library_name"] == "transformers"
    assert evaluation["env"] in yaml.safe_load(header)["tags"]
    assert evaluation["label"] in text and result["checkpoint_sha256"] in text
    assert f"| tokens generated | {result['budget']['tokens/generated']:,.0f} |" in text
    for name, group in evaluation["groups"].items():
        assert f"| {name} | {group['episodes']} | {group['success']:.3f} | " in text


def test_a_folder_holds_the_model_and_its_card(run_dir, tmp_path):
    out = tmp_path / "exported" / "model"
    named = publish(run_dir, str(out), dry_run=True)
    assert not out.exists() and publish(run_dir, str(out)) == named
    held = {path.name for path in out.iterdir()}
    assert held == set(named) >= LOADED and not held & {"optimizer.safetensors", "trainer.json", "SHA256SUMS"}
    assert (out / "README.md").read_text() == model_card(run_dir)
    network = AutoModelForCausalLM.from_pretrained(out)
    assert sum(p.numel() for p in network.parameters()) == read_json(MODEL / "sft.json")["parameters"]
    with pytest.raises(ConfigError, match="is there already"):
        publish(run_dir, str(out))


def test_an_export_that_a_full_disk_ends_leaves_nothing_and_can_be_repeated(run_dir, tmp_path):
    """The limit of a file's size stands for the disk's."""
    out = tmp_path / "exported" / "model"
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    try:
        with pytest.raises(RunDirectoryError, match="exported/model cannot be written"):
            publish(run_dir, str(out))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert not list(out.parent.iterdir())
    named = publish(run_dir, str(out))
    assert {path.name for path in out.iterdir()} == set(named)


def test_attempts_at_one_task_make_no_interval_of_the_card_narrower(run_dir):
    """Each task once, then twice with the same outcome: as many tasks, as wide an interval."""

    def intervals():
        rows = [line.split(" | ") for line in model_card(run_dir).splitlines() if " to " in line]
        return [row[3] for row in rows if len(row) > 4]

    once = intervals()
    episodes = read_jsonl(run_dir / "episodes.jsonl")
    for path in stored_variants(run_dir / "episodes.jsonl"):
        path.unlink()
    rewrite_jsonl(run_dir / "episodes.jsonl", [row | {"member": k} for row in episodes for k in (0, 1)])
    evaluation = read_json(run_dir / "evaluation.json")
    for group in evaluation["groups"].values():
        group["episodes"] *= 2
    write_json_atomic(run_dir / "evaluation.json", evaluation)
    assert intervals() == once and len(once) > 1
    assert "intervals over tasks" in " ".join(model_card(run_dir).split())


def test_a_hub_that_cannot_be_reached_is_one_paragraph_and_a_dry_run_asks_nobody(run_dir, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert set(publish(run_dir, "hub:owner/model", dry_run=True)) >= LOADED
    with pytest.raises(ConfigError, match="hub:owner/model was not written"):
        publish(run_dir, "hub:owner/model")


def test_a_run_without_its_own_checkpoint_or_scores_is_refused(run_dir, tmp_path):
    with pytest.raises(CheckpointError, match="stored runs are kept without.* r3l train .* --run-dir"):
        publish(STORED_RUN, str(tmp_path / "model"))
    (run_dir / "evaluation.json").write_text("{}")
    with pytest.raises(DataError, match=r"evaluation\.json"):
        publish(run_dir, str(tmp_path / "model"))
