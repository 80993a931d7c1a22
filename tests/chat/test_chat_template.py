"""A chat template that fails, hangs or drops messages gives a one-paragraph error before any work."""

import time

import pytest
from chat_models import CHATML, GEMMA, LLAMA3, chat_tokenizer, folder

from r3l.chat import chat_template
from r3l.chat.renderer import ChatRenderer
from r3l.core.errors import ConfigError
from r3l.core.pretrained import load_tokenizer
from r3l.core.text import Message

LOOP = "{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}"
BROKEN = {
    "refuses": ("{{ raise_exception('System role not supported') }}", "System role not supported"),
    "syntax error": ("{% for m in messages %}{{ m.content }", "TemplateSyntaxError"),
    "unknown filter": ("{{ messages | shout }}", "shout"),
    "undefined": ("{{ tools.first.name }}" + LOOP, "UndefinedError"),
    "divides by zero": ("{{ 1 // 0 }}" + LOOP, "ZeroDivisionError"),
    "calls itself": ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}" + LOOP, "RecursionError"),
    "leaves the sandbox": ("{{ messages.__class__.__mro__[1].__subclasses__() }}" + LOOP, "Error"),
    "parts of messages": (
        "{% for m in messages %}{{ m.content[0].text }}{{ eos_token }}{% endfor %}",
        "drops messages",
    ),
    "users alone": ("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}", "assistant"),
    "twice": ("{% for m in messages %}{{ m.content }}{{ m.content }}{{ eos_token }}{% endfor %}", "once"),
}
LOOPS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HEAVY = {
    "long": ("{% for i in range(99999) %}{{ 'a' * 30000 }}{% endfor %}" + LOOP, "characters"),
    "large": ("{{ 'a' * 3000000000 }}" + LOOP, "memory"),
    "power": ("{{ 9 ** (9 ** 9) }}" + LOOP, " s"),
}


def refused(tmp_path, template):
    where = folder(tmp_path, chat_tokenizer(template, "<|endoftext|>"))
    with pytest.raises(ConfigError) as refusal:
        ChatRenderer(load_tokenizer(where))
    paragraph = str(refusal.value)
    assert where in paragraph and "chat_template" in paragraph and "\n" not in paragraph
    return paragraph


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_template_is_one_paragraph(tmp_path, what):
    template, needle = BROKEN[what]
    assert needle in refused(tmp_path, template)


@pytest.mark.parametrize("what", HEAVY)
def test_time_memory_and_text_of_a_template_are_bounded(tmp_path, what):
    template, needle = HEAVY[what]
    began = time.monotonic()
    paragraph = refused(tmp_path, template)
    assert "does not come to an end" in paragraph and needle in paragraph
    assert time.monotonic() - began < 100


def test_what_a_template_refuses_later_is_one_paragraph_too():
    """Gemma's template rejects system messages; prompts without one work."""
    control = ("<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>")
    renderer = ChatRenderer(chat_tokenizer(GEMMA, *control, bos_token="<bos>"))
    assert renderer.opening([Message("user", "a")])
    with pytest.raises(
        ConfigError, match="roles system, user: TemplateError: System role not supported.*prompts="
    ):
        renderer.opening([Message("system", "be good"), Message("user", "a")])


def test_what_published_templates_use_is_no_error():
    """{% generation %}, loop controls, tojson, strftime_now, date strings."""
    template = (
        "{% if tools %}{{ tools | tojson(indent=2) }}{% endif %}{{ strftime_now('%d %b %Y') }}"
        "{% for m in messages %}{% if m.role == 'tool' %}{% continue %}{% endif %}<|im_start|>{{ m.role }}\n"
        "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}\n{% endfor %}"
    )
    assert ChatRenderer(chat_tokenizer(template, "<|im_end|>", "<|im_start|>")).end_id == 256
    named = chat_tokenizer(None, "<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>")
    named.chat_template = {"default": LLAMA3, "tool_use": "{{ raise_exception('no') }}"}
    assert ChatRenderer(named).end_id == 256


def test_today_is_the_same_day_every_day():
    dated = "{% if strftime_now is defined %}{{ strftime_now('%d %b %Y') }} {% endif %}" + CHATML
    tokenizer = chat_tokenizer(dated, "<|im_end|>", "<|im_start|>")
    assert chat_template.render(tokenizer, [{"role": "user", "content": "2+2?"}]).startswith(
        "26 Jul 2024 <|im_start|>user"
    )


def test_a_template_that_hangs_at_a_longer_dialog_only_is_stopped_there(monkeypatch):
    monkeypatch.setattr(chat_template, "SECONDS", 0.5)
    control = ("<|im_end|>", "<|im_start|>")
    renderer = ChatRenderer(
        chat_tokenizer("{% if messages | length > 60 %}" + LOOPS + "{% endif %}" + CHATML, *control)
    )
    with pytest.raises(ConfigError, match="TimeoutError: it takes more than 0.5 s"):
        renderer.opening([Message(role, "a") for role in ("user", "assistant") * 31])
