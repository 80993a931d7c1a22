import pytest


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """No pauses between attempts."""
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0)
