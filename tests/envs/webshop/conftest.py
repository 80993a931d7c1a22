"""A small catalogue of every kind of product, built once."""

import pytest

from envs.webshop.catalogue import Catalogue, build
from envs.webshop.synthetic import sources
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
    return lambda goal: Task(f"{shop.meta.id}/{goal}", "webshop", "t", "", {"catalogue": shop.meta.id, "goal": goal})
