"""A run's model goes out with a card that says what the run says, and nothing that only resuming needs."""

import shutil

import huggingface_hub
import pytest
import yaml
from program import run
from transformers import AutoModelForCausalLM

from r3l.evaluation.model_card import model_card
from r3l.files.digests import sha256_of, write_digests
from r3l.files.json_files import read_json
from r3l.files.paths import STORED, STORED_MODELS
from r3l.files.writing import write_json_atomic
from r3l.runs.places import find_runs

STORED_RUN = next(path.parent for path in find_runs(STORED) if path.parent.parent.name == "r3l")
MODEL = next(path for path in sorted(STORED_MODELS.iterdir()) if (path / "model.safetensors").is_file())
LOADED = {"README.md", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json"}


@pytest.fixture
def run_dir(tmp_path):
    """A stored run, with a start model in place of the checkpoint that stored runs are kept without."""
    folder = tmp_path / "seed0"
    shutil.copytree(STORED_RUN, folder)
    result = read_json(folder / "result.json")
    checkpoint = folder / result["checkpoint"]
    shutil.copytree(MODEL, checkpoint)
    for name in ("optimizer.safetensors", "trainer.json"):
        (checkpoint / name).write_text("for resuming")
    write_json_atomic(folder / "result.json", result | {"checkpoint_sha256": sha256_of(checkpoint)})
    write_digests(folder)
    return folder


def test_the_card_says_what_the_run_says():
    card = model_card(STORED_RUN)
    _, header, text = card.split("---\n", 2)
    evaluation, result = (read_json(STORED_RUN / f"{name}.json") for name in ("evaluation", "result"))
    assert yaml.safe_load(header)["library_name"] == "transformers"
    assert evaluation["env"] in yaml.safe_load(header)["tags"]
    assert evaluation["label"] in text and result["checkpoint_sha256"] in text
    assert f"| tokens generated | {result['budget']['tokens/generated']:,.0f} |" in text
    for name, group in evaluation["groups"].items():
        assert f"| {name} | {group['episodes']} | {group['success']:.3f} | " in text


def test_a_folder_holds_the_model_and_its_card(run_dir, tmp_path, monkeypatch, capsys):
    out = tmp_path / "exported" / "model"
    code, stdout, _ = run(monkeypatch, capsys, "model", "export", run_dir, out)
    held = {path.name for path in out.iterdir()}
    assert code == 0 and all(name in stdout for name in held)
    assert held >= LOADED and not held & {"optimizer.safetensors", "trainer.json", "SHA256SUMS"}
    assert (out / "README.md").read_text() == model_card(run_dir)
    network = AutoModelForCausalLM.from_pretrained(out)
    assert sum(p.numel() for p in network.parameters()) == read_json(MODEL / "sft.json")["parameters"]
    code, _, stderr = run(monkeypatch, capsys, "model", "export", run_dir, out)
    assert code == 2 and "is there already" in stderr


def test_a_dry_run_names_the_files_and_asks_nobody(run_dir, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    for target in ("hub:owner/model", tmp_path / "model"):
        code, stdout, _ = run(monkeypatch, capsys, "model", "export", run_dir, target, "--dry-run")
        assert code == 0 and all(name in stdout for name in LOADED)
    assert not (tmp_path / "model").exists()


def test_a_hub_that_cannot_be_reached_is_one_paragraph(run_dir, monkeypatch, capsys):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    code, _, stderr = run(monkeypatch, capsys, "model", "export", run_dir, "hub:owner/model")
    assert code == 2 and "hub:owner/model was not written" in stderr and "Traceback" not in stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hub:model"], "hub:OWNER/NAME"),
        (["hub:a/b/c", "--dry-run"], "is no place on the hub"),
        (["tensorboard"], "tensorboard is neither a folder"),
    ],
)
def test_targets_that_cannot_be(run_dir, monkeypatch, capsys, arguments, message):
    code, _, stderr = run(monkeypatch, capsys, "model", "export", run_dir, *arguments)
    assert code == 2 and message in stderr


def test_a_stored_run_has_no_checkpoint_to_give(tmp_path, monkeypatch, capsys):
    code, _, stderr = run(monkeypatch, capsys, "model", "export", STORED_RUN, tmp_path / "model")
    assert code == 2 and "stored runs are kept without" in stderr


def test_a_run_that_changed_after_its_evaluation_is_refused(run_dir, tmp_path, monkeypatch, capsys):
    (run_dir / "evaluation.json").write_text("{}")
    code, _, stderr = run(monkeypatch, capsys, "model", "export", run_dir, tmp_path / "model")
    assert code == 2 and "evaluation.json" in stderr
