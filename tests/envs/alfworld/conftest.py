"""A separate translation cache, and three published games (data/SOURCE.md) in the layout of a download."""

import json
import lzma
from pathlib import Path

import pytest

PUBLISHED = json.loads(
    lzma.decompress(Path(__file__).with_name("data").joinpath("published.json.xz").read_bytes())
)


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    root = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R3L_CACHE", str(root))
        yield root


@pytest.fixture
def download(tmp_path):
    """The root of a small download, in the published layout and format."""
    for game in PUBLISHED["games"]:
        path = tmp_path / "json_2.1.1" / game["id"] / "game.tw-pddl"
        path.parent.mkdir(parents=True)
        grammar = PUBLISHED["grammar"].replace("UNKNOWN GOAL", game["sentence"])
        content = {key: game[key] for key in ("walkthrough", "pddl_problem")} | {"solvable": True}
        path.write_text(json.dumps({**content, "pddl_domain": PUBLISHED["pddl_domain"], "grammar": grammar}))
    return tmp_path
