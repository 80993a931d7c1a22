"""A model folder of somebody else: its code never runs, and a mistake in it is one paragraph."""

import json
import shutil

import pytest
import torch
from start_models import START_FOLDER

from r3l.config import resolve
from r3l.core.errors import CheckpointError, ConfigError
from r3l.local.checkpoint import check_template, find, load_model

CPU = torch.device("cpu")


@pytest.fixture
def foreign(tmp_path):
    """A stored model's files in a folder without digests, whose Python files leave a mark when they run."""
    where = tmp_path / "model"
    shutil.copytree(START_FOLDER, where, ignore=shutil.ignore_patterns("sft.json", "SHA256SUMS"))
    for name in ("evil", "configuration_evil", "modeling_evil", "tokenization_evil"):
        (where / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    return where


def edited(path, **changes):
    content = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(
        json.dumps({key: value for key, value in (content | changes).items() if value is not None})
    )


AUTO_MAPS = {
    "model": ("config.json", {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}, "evil"),
    "model, known type": ("config.json", {"AutoModelForCausalLM": "evil.Model"}, "qwen2"),
    "config alone": ("config.json", {"AutoConfig": "configuration_evil.C"}, "evil"),
    "of another repository": ("config.json", {"AutoConfig": "someone/else--evil.C"}, "evil"),
    "tokenizer": (
        "tokenizer_config.json",
        {"AutoTokenizer": ["tokenization_evil.T", "tokenization_evil.T"]},
        "qwen2",
    ),
}


@pytest.mark.parametrize("what", AUTO_MAPS)
def test_code_of_a_folder_never_runs_and_nobody_is_asked(foreign, tmp_path, monkeypatch, what):
    file, auto_map, kind = AUTO_MAPS[what]
    edited(foreign / file, auto_map=auto_map)
    edited(foreign / "config.json", model_type=kind)
    if what == "tokenizer":
        edited(foreign / file, tokenizer_class="EvilTokenizer")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks"))
    try:
        load_model(str(foreign), CPU, "transformers")
    except CheckpointError as error:
        assert "auto_map" in str(error) and "\n" not in str(error) and "trust_remote_code" not in str(error)
    else:  # transformers has a class of its own for it
        assert kind == "qwen2"
    assert not (tmp_path / "ran").exists()


DAMAGED = {
    "config of another shape": ("config.json", "[1, 2]"),
    "sizes as text": ("config.json", '{"model_type": "qwen2", "hidden_size": "large"}'),
    "tokenizer of another shape": ("tokenizer.json", '{"model": 7}'),
    "tokenizer_config that is not JSON": ("tokenizer_config.json", "{]"),
    "generation_config of another shape": ("generation_config.json", "7"),
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_damaged_folder_is_one_paragraph(foreign, what):
    file, content = DAMAGED[what]
    (foreign / file).write_text(content)
    with pytest.raises(CheckpointError) as refusal:
        load_model(str(foreign), CPU, "packed")
    assert str(foreign) in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("manifest", [None, "sft.json", "source.json"])
def test_a_folder_without_weights_is_one_paragraph(foreign, manifest):
    """Also where a manifest has the digest of weights that are gone."""
    (foreign / "model.safetensors").unlink()
    if manifest:
        (foreign / manifest).write_text('{"weights_sha256": "ab"}')
    with pytest.raises(CheckpointError, match="model.safetensors") as refusal:
        load_model(str(foreign), CPU, "packed")
    assert str(foreign) in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_padding_token_outside_the_vocabulary_is_refused_before_any_work(foreign):
    """The first id that has no embedding; its neighbour below is fine."""
    size = json.loads((foreign / "config.json").read_text())["vocab_size"]
    for padding in (size, size + 1000):
        edited(foreign / "config.json", pad_token_id=padding)
        for check in (find, lambda model: load_model(model, CPU, "packed")):
            with pytest.raises(
                CheckpointError, match=f"pad_token_id .* is {padding}, .* the ids 0 to {size - 1}"
            ):
                check(str(foreign))
    edited(foreign / "config.json", pad_token_id=size - 1)
    assert find(str(foreign)) == str(foreign)


@pytest.mark.parametrize("pair", ["xq qx", ["xq", "qx"], "onlyone", 7])
def test_merges_outside_the_vocabulary_are_one_paragraph(foreign, pair):
    tokenizer = json.loads((foreign / "tokenizer.json").read_text())
    tokenizer["model"] |= {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [pair]}
    (foreign / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(CheckpointError) as refusal:
        load_model(str(foreign), CPU, "packed")
    assert str(foreign) in str(refusal.value) and "tokenizer" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_what_is_no_folder_is_named(tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    with pytest.raises(
        CheckpointError, match="model.gguf is a file, .*llama.cpp, and evaluate it by --server URL"
    ):
        find(str(tmp_path / "model.gguf"))
    with pytest.raises(CheckpointError, match="there is no folder .*nowhere; give one"):
        find(str(tmp_path / "nowhere"))


def test_a_model_with_fewer_positions_than_a_dialog_may_have_is_refused(foreign):
    edited(foreign / "config.json", max_position_embeddings=512)
    start = str(foreign)
    run = resolve("nano", "alfworld", "zero_shot", 0, start, ["sampling.max_context=512"])
    check_template(run)
    run = resolve("nano", "alfworld", "zero_shot", 0, start, ["sampling.max_context=513"])
    with pytest.raises(
        ConfigError, match="513 tokens, but .* has positions for 512 .* set sampling.max_context=512"
    ):
        check_template(run)
