import pytest


@pytest.fixture(autouse=True, scope="session")
def nothing_said_before(tmp_path_factory):
    """What earlier runs on this machine have stored would keep Java from being asked."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("R3L_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield
