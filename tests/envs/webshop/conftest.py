"""A small catalogue of every kind of product, built once."""

import json

import pytest
from r3l.envs.webshop.engine.catalogue import Catalogue, build
from r3l.envs.webshop.engine.synthetic import records, sources

from r3l.core.task import Task


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("webshop") / "shop"
    build(sources(90, 3), folder, "original")
    return Catalogue.at(folder)


@pytest.fixture
def task(shop, monkeypatch):
    """Tasks of the small catalogue by goal number."""
    monkeypatch.setenv("R3L_WEBSHOP", str(shop.folder))
    return lambda goal: Task(
        f"{shop.meta.id}/{goal}", "webshop", "t", "", {"catalogue": shop.meta.id, "goal": goal}
    )


@pytest.fixture
def files(tmp_path):
    """The three files of the original for 60 products."""
    rows = list(records(60, 5))
    paths = [tmp_path / name for name in ("items.json", "attrs.json", "human.json")]
    tables = [
        [record for record, _, _ in rows],
        {record["asin"]: attributes for record, attributes, _ in rows},
        {record["asin"]: wishes for record, _, wishes in rows},
    ]
    for path, table in zip(paths, tables, strict=True):
        path.write_text(json.dumps(table), encoding="utf-8")
    return paths
