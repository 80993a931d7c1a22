"""The tables of methods and options say what the configs and the settings models say."""

import re

import pytest

from r3l.config import names
from r3l.config.options import method_options
from r3l.files.paths import CONFIGS, ROOT
from r3l.report import options

DOCS = (ROOT / "docs" / "methods.md").read_text()


@pytest.fixture(scope="module")
def rows():
    return {row["method"]: row for row in options.methods("nano")}


def test_every_option_is_one_line_with_its_audit_id():
    for option in method_options():
        assert option.meaning and "\n" not in option.meaning and option.used_by, option
    named = " ".join(option.meaning for option in method_options())
    wanted = {f"A-{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18)}
    wanted |= {f"B-{n}" for n in (2, 3, 5, 6, 7, 12, 13, 15, 16, 18, 22, 33, 37, 40, 41)}
    assert wanted == set(re.findall(r"[AB]-\d+", named))


def test_profiles_change_what_the_audit_lists(rows):
    released = rows["r3l"]["changed"]["released_code"]
    assert released["amplify_rule"] == "released_code" and released["opmd_tau"] == 1.0
    assert (released["kl"], released["kl_coef"]) == ("k2", 0.001)
    assert rows["r3l"]["changed"]["fair"] == {}
    assert rows["gspo"]["rollouts"] == {"paper": 8, "released_code": 1, "fair": 8}
    assert rows["reflect_grpo"]["rollouts"] == {"paper": 12, "released_code": 12, "fair": 8}


def test_every_method_is_in_the_docs(rows):
    for name in rows:
        assert f"`{name}`" in DOCS or name == "zero_shot", name
    assert set(rows) == set(names("methods")) and CONFIGS.is_dir()


def test_an_ablation_is_shown_as_its_difference(rows):
    _, ablation = options.methods_table([rows["r3l"], rows["r3l_no_credit"]]).cells()
    assert ablation[2].text == "as r3l, but\ncredit: nothing"
