"""The tokens that end a turn: the tokenizer's, those that the model declares, and the template's."""

import json

import pytest
from chat_models import ALPACA, CHATML, GEMMA, GLM, LLAMA2, LLAMA3, PHI, chat_tokenizer, folder

from r3l.chat.renderer import ChatRenderer
from r3l.core.errors import ConfigError
from r3l.core.pretrained import load_tokenizer
from r3l.core.text import Message
from r3l.files.paths import STORED_MODELS

# template, eos_token, further control tokens, generation_config.json, token of SFT targets, all that end a
# turn
FAMILIES = {
    "Qwen base": (
        CHATML,
        "<|endoftext|>",
        ["<|im_start|>", "<|im_end|>"],
        {},
        "<|im_end|>",
        "<|endoftext|> <|im_end|>",
    ),
    "Qwen instruct": (
        *(CHATML, "<|im_end|>", ["<|im_start|>", "<|endoftext|>"], {"eos_token_id": [256, 258]}),
        *("<|im_end|>", "<|im_end|> <|endoftext|>"),
    ),
    "Gemma": (
        *(GEMMA, "<eos>", ["<bos>", "<start_of_turn>", "<end_of_turn>"], {"eos_token_id": [256, 259]}),
        *("<end_of_turn>", "<eos> <end_of_turn>"),
    ),
    "Phi": (
        *(PHI, "<|endoftext|>", ["<|assistant|>", "<|end|>", "<|user|>"], {"eos_token_id": [256, 257, 258]}),
        *("<|end|>", "<|endoftext|> <|assistant|> <|end|>"),
    ),
    "Llama 3": (
        *(
            LLAMA3,
            "<|end_of_text|>",
            ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"],
            {"eos_token_id": 256},
        ),
        *("<|eot_id|>", "<|end_of_text|> <|eot_id|>"),
    ),
    "Llama 2, a blank before its end": (LLAMA2, "</s>", ["<s>"], {"eos_token_id": 256}, "</s>", "</s>"),
    "GLM, ended by the user's header": (
        *(GLM, "<|endoftext|>", ["<|user|>", "<|assistant|>"], {"eos_token_id": [256, 257]}),
        *("<|user|>", "<|endoftext|> <|user|>"),
    ),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_ends_of_model_families(tmp_path, family):
    template, eos, further, generation, written, ends = FAMILIES[family]
    bos = next((token for token in further if token in ("<bos>", "<s>")), None)
    where = folder(tmp_path, chat_tokenizer(template, eos, *further, bos_token=bos), **generation)
    renderer = ChatRenderer(load_tokenizer(where))
    names = renderer.tokenizer.convert_ids_to_tokens
    assert names(renderer.end_id) == written
    assert (
        {names(i) for i in renderer.end_ids} == set(ends.split()) == {names(i) for i in renderer.stops("end")}
    )
    assert renderer.end_ids <= renderer.stops("line")
    target = renderer.response("do it")  # what SFT teaches
    assert names(target[-1]) == written and renderer.text(target) == "do it"
    for end in renderer.end_ids:
        assert renderer.text([*target[:-1], end]) == "do it"
    opening, following = (
        renderer.opening([Message("user", "a")]),
        renderer.following([Message("user", "b")], True),
    )
    whole = renderer.tokenizer.apply_chat_template(
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "do it"},
            {"role": "user", "content": "b"},
        ],
        tokenize=False,
        add_generation_prompt=True,
    )
    said = renderer.tokenizer.decode([*opening, *target, *following])
    assert said == whole.replace(" </s>", "</s>")


def test_stored_models_end_as_before():
    for model in STORED_MODELS.iterdir():
        renderer = ChatRenderer(load_tokenizer(str(model)))
        assert renderer.end_ids == {renderer.end_id} == {renderer.tokenizer.eos_token_id}


def test_an_end_that_is_not_the_templates_leaves_its_turn_to_be_closed(tmp_path):
    """Sampling ended by <|endoftext|>: the dialog still reads as the template writes it."""
    renderer = ChatRenderer(chat_tokenizer(CHATML, "<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    assert renderer.tokenizer.decode(renderer.following([Message("user", "b")], ended=False)).startswith(
        "<|im_end|>\n"
    )


def test_an_end_that_is_no_special_token_stays_text_in_a_message():
    renderer = ChatRenderer(chat_tokenizer(CHATML, "<|endoftext|>", "<|im_start|>", plain=["<|im_end|>"]))
    assert renderer.tokenizer.convert_ids_to_tokens(renderer.end_id) == "<|im_end|>"
    assert (
        renderer.opening([Message("user", "x<|im_end|>y")]).count(renderer.end_id) == 1
    )  # the template's own
    assert renderer.response("a<|im_end|>b").count(renderer.end_id) == 1


def test_config_json_declares_ends_where_there_is_no_generation_config(tmp_path):
    where = folder(tmp_path, chat_tokenizer(CHATML, "<|im_end|>", "<|im_start|>", "<|endoftext|>"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "eos_token_id": [258]}))
    assert ChatRenderer(load_tokenizer(where)).end_ids == {256, 258}


@pytest.mark.parametrize(
    ("template", "control", "needle"),
    [
        (CHATML, ["<|im_start|>"], "<|im_end|>"),  # written, but no token
        (GEMMA, ["<bos>", "<start_of_turn>"], "<end_of_turn>"),
        (ALPACA, [], "### Instruction"),  # text alone
        (GLM, ["<|user|>", "<|assistant|>"], "<|user|>"),  # the next header, which nothing declares an end
        ("{% for m in messages %}{{ m.content }}\n{% endfor %}", [], "nothing"),
    ],
)
def test_a_template_without_an_end_is_refused_with_the_fix(tmp_path, template, control, needle):
    where = folder(tmp_path, chat_tokenizer(template, "<|endoftext|>", *control, bos_token="<|endoftext|>"))
    with pytest.raises(ConfigError) as refusal:
        ChatRenderer(load_tokenizer(where))
    paragraph = str(refusal.value)
    assert needle in paragraph and where in paragraph and "eos_token" in paragraph and "\n" not in paragraph


@pytest.mark.parametrize("declared", ["<|im_end|>", [256, "x"], 1.5, True, -1, 10**12, [[256]], {"id": 256}])
def test_ends_that_are_no_tokens_are_refused(tmp_path, declared):
    where = folder(tmp_path, chat_tokenizer(CHATML, "<|im_end|>", "<|im_start|>"), eos_token_id=declared)
    with pytest.raises(ConfigError, match=r"generation_config\.json: eos_token_id"):
        ChatRenderer(load_tokenizer(where))


def test_an_end_beyond_the_models_vocabulary_is_never_an_end(tmp_path):
    """A token added to the tokenizer only: the model has no logit for it."""
    where = folder(tmp_path, chat_tokenizer(CHATML, "<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "vocab_size": 258}))
    with pytest.raises(ConfigError, match="vocab_size"):
        ChatRenderer(load_tokenizer(where))
