"""Keys and passwords that a server repeats, or that an address holds, are in no message."""

import pytest
from chat_requests import ask
from chat_server import serving

from r3l.core.errors import ConfigError
from r3l.endpoint.options import EndpointOptions, ServerError
from r3l.files.redact import masked_message

ECHOES = {
    "an error page": (401, "bad key: sk-secret/1"),
    "the header": (
        403,
        {"headers": {"Authorization": "Bearer sk-other", "authorization": "Basic dXNlcjp3b3JkNw=="}},
    ),
    "as JSON spells it": (400, '{"key": "sk-secret/1", "user": "user:word7"}'),
    "cut in two by the end of the message": (418, "." * 295 + "sk-secret/1"),
}


@pytest.mark.parametrize("echo", ECHOES)
def test_what_a_server_echoes_of_its_secrets_is_masked(monkeypatch, echo):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret/1")
    with serving(lambda request, before: ECHOES[echo]) as (url, _), pytest.raises(ServerError) as refused:
        ask(url.replace("//", "//user:word7@"))
    assert not [part for part in ("sk-", "word7", "dXNl", "c2st") if part in str(refused.value)], (
        refused.value
    )


@pytest.mark.parametrize("key", ["sk-secret\n", "sk secret", "sk-sécret"])
def test_a_key_that_no_header_can_carry_is_refused_unread(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with pytest.raises(ConfigError, match="the key in OPENAI_API_KEY has spaces, line breaks") as refused:
        ask("http://localhost:1")
    assert "cret" not in str(refused.value)


@pytest.mark.parametrize(
    "place", ["", "@", "me:secret@", "secret@/v1", ":8000", "me:secret@:8000", "?secret"]
)
def test_an_address_without_a_host_is_refused_without_its_secrets(place):
    with pytest.raises(ConfigError, match="must be an address such as") as refusal:
        EndpointOptions(f"http://{place}", "tiny")
    assert "secret" not in str(refusal.value)


def test_an_invalid_address_does_not_show_the_key_in_its_path():
    with pytest.raises(ConfigError, match="must be an address such as") as refusal:
        EndpointOptions("host/v1/sk-proxy-secret/openai", "tiny")
    assert "secret" not in masked_message(str(refusal.value))


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [("socks5://me:secret@host:1", "socksio"), ("ht!tp://me:secret@host:x", "Unknown scheme")],
)
def test_a_proxy_that_cannot_be_used_is_one_paragraph_without_its_password(monkeypatch, proxy, reason):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", proxy)
    with pytest.raises(ConfigError, match=reason) as refusal:
        ask("http://localhost:1")
    assert "HTTPS_PROXY" in str(refusal.value) and "secret" not in str(refusal.value)
