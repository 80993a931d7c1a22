"""Loading models: a tokenizer must read text as it did when its model was built."""

import json
import shutil

import huggingface_hub
import pytest
import torch
from start_models import START_FOLDER
from tokenizers import Tokenizer

from r3l.config import resolve
from r3l.core.errors import CheckpointError, ConfigError
from r3l.files.digests import SUMS, write_digests
from r3l.files.paths import STORED_MODELS
from r3l.local.checkpoint import last_good, load_model
from r3l.local.engine import train
from r3l.sft.nano_model import build_model, build_tokenizer
from r3l.trinity import engine as trinity

TEXTS = ["pick b0992 for $29.04", "go to drawer 12", "<think>find mug</think><action>click[b0992]</action>"]


def test_a_saved_tokenizer_reads_as_it_did_before_it_was_saved(tmp_path):
    """transformers 5 loads a Qwen2 model's tokenizer with Qwen2's own word splitting, whatever the file
    says."""
    corpus = [f"item b{k:04d} costs ${k % 90}.{k % 100:02d}" for k in range(2000)]
    tokenizer = build_tokenizer(corpus)
    build_model(tokenizer, 0).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    _, loaded = load_model(str(tmp_path), torch.device("cpu"))
    for text in (*TEXTS, *corpus[:50]):
        assert loaded.encode(text, add_special_tokens=False) == tokenizer.encode(
            text, add_special_tokens=False
        )


@pytest.mark.parametrize("name", sorted(path.name for path in STORED_MODELS.iterdir()))
def test_stored_tokenizers_read_as_their_files_say(name):
    _, loaded = load_model(name, torch.device("cpu"))
    written = Tokenizer.from_file(str(STORED_MODELS / name / "tokenizer.json"))
    for text in TEXTS:
        assert (
            loaded.encode(text, add_special_tokens=False)
            == written.encode(text, add_special_tokens=False).ids
        )


def flip(path, at=-1):
    """One bit of a file's last byte, or of another one."""
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


@pytest.fixture
def checkpoints(tmp_path):
    """Two folders with a file each, and their digests."""
    for step in ("step-000005", "step-000010"):
        (tmp_path / step).mkdir()
        (tmp_path / step / "model.safetensors").write_bytes(step.encode())
        write_digests(tmp_path / step)
    return tmp_path


@pytest.mark.parametrize("damage", ["flip", "delete", "no digests"])
def test_the_last_good_checkpoint_is_used_and_the_bad_one_named(checkpoints, damage, caplog):
    newest = checkpoints / "step-000010"
    assert last_good(checkpoints) == newest
    if damage == "flip":
        flip(newest / "model.safetensors")
    else:
        (newest / ("model.safetensors" if damage == "delete" else SUMS)).unlink()
    assert last_good(checkpoints) == checkpoints / "step-000005"
    assert "step-000010: " in caplog.text and (checkpoints / "damaged-step-000010").is_dir()
    flip(checkpoints / "step-000005" / "model.safetensors")
    for _ in range(2):  # nothing is renamed then: the answer stays
        with pytest.raises(CheckpointError, match="every checkpoint .* .step-000005: model.safetensors"):
            last_good(checkpoints)
    assert last_good(checkpoints / "nothing") is None


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
def test_one_flipped_bit_of_a_start_model_is_found(tmp_path, name):
    """Another tokenizer or template would play other episodes, too."""
    folder = tmp_path / "copy"
    shutil.copytree(START_FOLDER, folder)
    flip(folder / name, at=60)
    with pytest.raises(CheckpointError, match=f"is damaged: {name}"):
        load_model(str(folder), torch.device("cpu"))


def test_a_configuration_that_cannot_be_is_refused_with_its_reason(tmp_path):
    """In a folder without digests, as others write it."""
    folder = tmp_path / "start"
    shutil.copytree(START_FOLDER, folder)
    (folder / SUMS).unlink()
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"num_hidden_layers"', '"num_hidden_laxers"'))
    with pytest.raises(
        CheckpointError, match=r"cannot be loaded from .*`num_hidden_layers` \(32\) must be equal"
    ):
        load_model(str(folder), torch.device("cpu"))


@pytest.mark.parametrize("model", ["nope/nope", "folder", "nobody", "é", "a,,b"])
def test_a_model_that_does_not_exist_is_refused_before_a_directory_is_made(tmp_path, monkeypatch, model):
    """Offline, as without a network; of the hub, an empty folder, of this project."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    (tmp_path / "folder").mkdir()
    run = resolve("nano", "math", "grpo", 0, str(tmp_path / model) if model == "folder" else model)
    with pytest.raises(CheckpointError, match=f"model '.*{model}'") as refused:
        train(run, tmp_path / "run")
    assert "\n" not in str(refused.value) and not (tmp_path / "run").exists()


@pytest.mark.parametrize(("engine", "train"), [("local", train), ("trinity", trinity.train)])
def test_a_run_is_checked_before_it_begins_in_an_empty_directory_too(tmp_path, engine, train):
    """A user may make --run-dir first; the model has fewer positions than the context."""
    overrides = [f"engine={engine}", "sampling.max_context=4096", "train.steps=1", "workers=0"]
    run = resolve("nano", "math", "grpo", 0, overrides=overrides)
    with pytest.raises(ConfigError, match="max_context is 4096 tokens, but .* has positions for 2048"):
        train(run, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_model_with_dropout_trains_without(tmp_path, nano):
    """Log-probs of training are those of sampling, and draws of no generator are left to a resume."""
    model, tokenizer = nano
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.5}))
    loaded, _ = load_model(str(tmp_path), torch.device("cpu"))
    ids_1_T = torch.arange(12)[None]
    with torch.no_grad():
        evaluated, trained = (loaded.train(mode)(ids_1_T).logits for mode in (False, True))
    assert torch.equal(evaluated, trained)
