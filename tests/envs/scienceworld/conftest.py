import pytest
from r3l.envs.scienceworld.engine import simulator


@pytest.fixture(autouse=True, scope="session")
def not_the_users_store(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R3L_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def nothing_remembered(tmp_path, monkeypatch):
    """Clear the cache: else observations of earlier tests would be returned without the simulator."""
    monkeypatch.setenv("R3L_CACHE", str(tmp_path / "cache"))
    simulator.open_disk_cache.cache_clear()
    simulator._caches.clear()
