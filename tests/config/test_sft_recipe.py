"""A wrong recipe of SFT is one paragraph with file, key, value and fix, before anything is played."""

import pytest
import yaml

from r3l.config import sft_recipe as recipes
from r3l.core.errors import ConfigError
from r3l.files.paths import CONFIGS

STORED = yaml.safe_load((CONFIGS / "sft" / "math-1.5m.yaml").read_text())
RATES = {"low": 0.1, "high": 0.5, "systematic": 0.5, "overlook": 0.0}


def with_rates(rates):
    return {"phases": [STORED["phases"][0] | {"error_rates": rates}]}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (with_rates(RATES | {"sistematic": 0.1}), "'sistematic'.*did you mean 'systematic'"),
        (with_rates({"low": 0.1, "high": 0.5, "overlook": 0}), "'systematic' is missing"),
        (with_rates(RATES | {"low": 0.6}), "low, 0.6, is above high, 0.5"),
        (with_rates(RATES | {"overlook": 1.5}), "overlook is 1.5.*from 0 to 1"),
        (with_rates(RATES | {"low": -0.1}), "low is -0.1.*from 0 to 1"),
        ({"phases": [5]}, "'phases.0.scripted' has value 5.*keys and values are expected"),
        (
            {"phases": [STORED["phases"][0], None]},
            "'phases.1.scripted' has value None.*keys and values are expected",
        ),
        (
            {"phases": [["steps"]]},
            "'phases.0.scripted' has value \\['steps'\\]: keys and values are expected",
        ),
        ({"phases": [STORED["phases"][0] | {"stepz": 1}]}, "unknown key 'phases.0.scripted.stepz'"),
        ({"name": "other"}, "key 'name' is 'other', but the file is called 'mine'; use one name in both"),
    ],
)
def test_a_recipe_that_cannot_be_used_is_one_paragraph(tmp_path, monkeypatch, changes, words):
    (tmp_path / "sft").mkdir()
    monkeypatch.setattr(recipes, "CONFIGS", tmp_path)
    (tmp_path / "sft" / "mine.yaml").write_text(yaml.safe_dump(STORED | {"name": "mine"} | changes))
    with pytest.raises(ConfigError, match=words) as error:
        recipes.load_config("mine")
    assert str(tmp_path / "sft" / "mine.yaml") in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("path", sorted((CONFIGS / "sft").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_recipe_of_this_project_can_be_used(path):
    assert recipes.load_config(path.stem).name == path.stem
