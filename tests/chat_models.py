"""Tokenizers of published models in small: a byte-level vocabulary, their control tokens and chat
templates."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
PHI = (
    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% else %}{{ eos_token }}{% endif %}"
)
LLAMA3 = (
    "{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}{{ bos_token }}[INST] {{ m.content }} [/INST]"
    "{% else %}{{ m.content }} {{ eos_token }}{% endif %}{% endfor %}"
)
GLM = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
ALPACA = (
    "{% for m in messages %}{{ '### Instruction' if m.role == 'user' else '### Response' }}:\n{{ m.content }}\n\n"
    "{% endfor %}{% if add_generation_prompt %}### Response:\n{% endif %}"
)


def chat_tokenizer(template, eos, *further, plain=(), **options):
    """Its control tokens are ``eos`` and ``further``, in this order after 256 bytes; ``plain``: added, not
    special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in (eos, *further)])
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in plain])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=eos, chat_template=template, **options
    )


def sentencepiece_tokenizer(template, kind, *further, plain=(), rstrip=False):
    """A tokenizer that puts a blank before the beginning of a text: of the dialog (``kind`` "first", as
    Mistral's), or of every part between control tokens ("prepend", as Llama 2's and Phi-3's).

    Its control tokens are <s>, </s> and ``further``, which take a following blank if ``rstrip`` (Phi-3's).
    """
    letters = sorted({chr(code) for code in range(32, 127)} - {" "} | {"\u2581", "\n"})
    vocab = {letter: k for k, letter in enumerate(letters)}
    merges = []
    for word in ("\u2581The", "The", "\u2581go", "go", "\n\n", ".."):
        for k in range(2, len(word) + 1):
            if word[:k] not in vocab:
                merges.append((word[: k - 1], word[k - 1]))
                vocab[word[:k]] = len(vocab)
    core = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    if kind == "first":
        options = {"replacement": "\u2581", "prepend_scheme": "first", "split": False}
        core.pre_tokenizer = pre_tokenizers.Metaspace(**options)
        core.decoder = decoders.Metaspace(**options)
    else:
        prepend = normalizers.Prepend("\u2581")
        core.normalizer = normalizers.Sequence([prepend, normalizers.Replace(" ", "\u2581")])
        blanks = decoders.Replace("\u2581", " ")
        core.decoder = decoders.Sequence([blanks, decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    core.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in ("<s>", "</s>")])
    core.add_special_tokens(
        [AddedToken(text, special=True, normalized=False, rstrip=rstrip) for text in further]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", chat_template=template
    )


def folder(path, tokenizer, **generation):
    """The tokenizer in a folder, with a generation_config.json of these keys."""
    tokenizer.save_pretrained(path)
    if generation:
        (path / "generation_config.json").write_text(json.dumps(generation))
    return str(path)
