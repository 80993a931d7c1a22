import pytest
import yaml

from r3l.config import sft_recipe as recipes


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """Writes a recipe of the phases given, for mathematics."""
    stored = yaml.safe_load((recipes.CONFIGS / "sft" / "math-1.5m.yaml").read_text())
    error_rates = stored["phases"][0]["error_rates"]
    (tmp_path / "sft").mkdir()
    monkeypatch.setattr(recipes, "CONFIGS", tmp_path)

    def write(*phases, **settings):
        changed = {"name": "tiny", "tokens_per_step": 300, "layers": 1, "hidden_size": 64, **settings}
        changed["phases"] = [{**p, "error_rates": error_rates} for p in phases]
        (tmp_path / "sft" / "tiny.yaml").write_text(yaml.safe_dump({**stored, **changed}))

    return write
