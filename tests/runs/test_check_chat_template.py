"""What a chat template refuses is an error of every command that renders with it, before any directory is
made."""

import shutil

import pytest
from chat_models import CHATML, chat_tokenizer
from program import run

from r3l.chat.renderer import ChatRenderer
from r3l.config import resolve
from r3l.core.errors import ConfigError
from r3l.files.paths import STORED_MODELS
from r3l.runs.check_chat_template import try_dialogs

CONTROL = ("<|im_end|>", "<|im_start|>")


def renderer(template):
    return ChatRenderer(chat_tokenizer(template, *CONTROL))


NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML
ALTERNATING = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turn') }}"
    "{% endif %}{% endfor %}" + CHATML
)
REFUSED = {
    "system message of full prompts": (NO_SYSTEM, "webshop", "grpo", ["prompts=full"]),
    "that of a reflection": (NO_SYSTEM, "math", "r3l", ["prompts=full", "env_settings.options.ask=boxed"]),
    "guidance in mid-dialog": (ALTERNATING, "alfworld", "r3l@guidance_place=system_message", []),
    "an observation twice": (ALTERNATING, "alfworld", "r3l@replay_duplicate_obs=true", []),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_a_run_will_send_is_tried(what):
    template, env, method, overrides = REFUSED[what]
    with pytest.raises(ConfigError, match="cannot render a dialog of the roles"):
        try_dialogs(resolve("nano", env, method, 0, overrides=overrides), renderer(template))
    try_dialogs(
        resolve("nano", env, method.partition("@")[0], 0), renderer(template)
    )  # compact prompts, guidance in the user's turn
    try_dialogs(resolve("nano", env, method, 0, overrides=overrides), renderer(CHATML))


@pytest.mark.parametrize("env", ["alfworld", "webshop", "scienceworld", "math", "binary_matrix"])
def test_every_environment_has_dialogs_to_try(env):
    try_dialogs(resolve("nano", env, "r3l", 0, overrides=["prompts=full"]), renderer(CHATML))


THINKING = CHATML.replace("m.content", "m.content.split('</think>')[-1]")
OPENED = THINKING.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
# As gpt-oss: the thought of the last response alone, from a field of its message.
IN_FIELD = CHATML.replace(
    "{{ m.content }}", "{% if loop.last and m.thinking %}{{ m.thinking }}{% endif %}{{ m.content }}"
)


@pytest.mark.parametrize("template", [THINKING, OPENED, IN_FIELD])
def test_a_template_that_drops_thoughts_needs_turns_as_samples(template):
    """Known by its rendering, whatever the model is called; a dialog of one turn has no earlier thought."""
    thinking = renderer(template)
    wanted = "drops the thoughts of earlier responses.*samples=turn"
    for env, method in (("alfworld", "grpo"), ("math", "r3l"), ("webshop", "zero_shot")):
        full = ["prompts=full"] if env != "math" else ["env_settings.options.turns=whole"]
        run = resolve("nano", env, method, 0, overrides=full)
        with pytest.raises(ConfigError, match=wanted):
            try_dialogs(run, thinking)
        try_dialogs(run, thinking, rendered_by_server=True)
        try_dialogs(resolve("nano", env, method, 0, overrides=[*full, "samples=turn"]), thinking)
        try_dialogs(run, renderer(CHATML))
    once = ["prompts=full", "env_settings.max_turns=1"]
    try_dialogs(resolve("nano", "alfworld", "zero_shot", 0, overrides=once), thinking)


COMMANDS = {
    "train": ["train", "--env", "math", "--model", "MODEL", "--run-dir", "new"],
    "trinity": ["train", "--env", "math", "--model", "MODEL", "--engine", "trinity", "--run-dir", "new"],
    "evaluate": ["evaluate", "math", "--model", "MODEL", "--out", "new"],
    "probe": ["probe", "math", "--model", "MODEL", "--out", "new/probe.json"],
    "sft": ["sft", "math-1.5m", "--model", "MODEL", "--out", "new"],
    "doctor": ["doctor", "memory", "--env", "math", "--model", "MODEL"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_broken_template_is_one_paragraph_and_leaves_no_directory(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(STORED_MODELS / "math-1.5m", "model")
    broken = tmp_path / "model" / "chat_template.jinja"
    broken.write_text("{{ raise_exception('not today') }}")
    for record in ("sft.json", "SHA256SUMS"):
        (tmp_path / "model" / record).unlink(missing_ok=True)
    code, _, err = run(monkeypatch, capsys, *(word.replace("MODEL", "./model") for word in COMMANDS[command]))
    assert (code, [path.name for path in tmp_path.iterdir()]) == (2, ["model"]), err
    assert "not today" in err and len(err.strip().splitlines()) == 1
