"""The nano model: a Qwen2-architecture language model with its own tokenizer.

Byte-level BPE, so any text can be encoded. The protocol's fixed phrases are single tokens, which keeps an
episode in a small house under about 600 tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 1024
NUMBERED_VOCABULARY = 1536  # has room for every numbered name of a small house
WORDS = r" ?[A-Za-z]+| ?[0-9]+|\s|[^\sA-Za-z0-9]"
NUMBERED = r" ?[a-z]+ [0-9]+"  # such as "mug 1"
SPECIAL = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
PHRASES = (
    "<think>",
    "</think>",
    "<action>",
    "</action>",
    '{"trajectory_summary": "',
    '", "root_cause_analysis": "',
    '", "trajectory_outcome": "',
    '", "improvement_suggestion": "',
    '", "improvement_suggestion": null, "retry_from_step": null}',
    '", "retry_from_step": ',
)
CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def build_tokenizer(corpus: Iterable[str], numbered_names: bool = False) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer of up to 1,024 entries on the texts ``corpus``; deterministic.

    With ``numbered_names`` it has up to 1,536, and a word and the number after it may be one token: a small
    model that copies ``mug 1`` then cannot take the number from another name. A small corpus gives fewer.
    """
    tokenizer = Tokenizer(models.BPE())
    # Words keep their leading space; digits and punctuation are separate tokens, so that numbers can be
    # copied.
    words = f"{NUMBERED}|{WORDS}" if numbered_names else WORDS
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=(NUMBERED_VOCABULARY if numbered_names else VOCABULARY) - len(PHRASES),
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus, trainer)

    # Added after training, so that the phrases count towards the vocabulary but are never split.
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer,
        pad_token=SPECIAL[0],
        eos_token=SPECIAL[1],
        additional_special_tokens=list(SPECIAL[2:]),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


def build_model(tokenizer: Any, seed: int, layers: int = 5, hidden_size: int = 128) -> Qwen2ForCausalLM:
    """A Qwen2 model for ``tokenizer`` with random float32 weights; the same seed gives the same weights.

    ``hidden_size``: a multiple of 64, for query heads of 32 dimensions and two key-value heads. Sets the seed
    of torch's global generator.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        use_cache=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    # transformers initialises the weights from torch's global generator.
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    return model
