"""Secrets are masked in data and messages, in every form, and no ordinary word is."""

import base64

import pytest

from r3l.files import redact
from r3l.files.json_files import append_jsonl, rewrite_jsonl
from r3l.files.redact import hide_address, hide_fields, masked, masked_json, masked_message
from r3l.files.writing import write_json_atomic, write_text_atomic

SECRET = 'sk-"secret"/1'  # JSON and addresses spell it in their own ways


@pytest.fixture(autouse=True)
def nothing_hidden(monkeypatch):
    monkeypatch.setattr(redact, "_hidden", set())
    for name in (*redact.VARIABLES, *redact.ADDRESSES, redact.HEADERS):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("variable", redact.VARIABLES)
def test_a_secret_of_the_environment_is_masked_in_every_form(monkeypatch, variable):
    monkeypatch.setenv(variable, SECRET)
    coded = base64.b64encode(SECRET.encode()).decode()
    for form in (SECRET, r"sk-\"secret\"/1", "sk-%22secret%22%2F1", coded, coded.rstrip("=")):
        assert masked(f"a{form} b").startswith("a*** b") or masked(f"a{form} b").startswith("a***=")
    assert masked_json({SECRET: [1, {"a": f"{SECRET}."}]}) == {"***": [1, {"a": "***."}]}


@pytest.mark.parametrize("key", ["EMPTY", "none", "ollama", "x", ""])
def test_a_placeholder_for_a_key_is_an_ordinary_word(monkeypatch, key):
    monkeypatch.setenv(redact.KEY, key)
    assert masked("The box is EMPTY, none has an x.") == "The box is EMPTY, none has an x."


def test_data_keeps_words_that_a_message_takes_for_a_header_or_an_address():
    for text in ("Basic arithmetic", "bearer of bad news", "see http://a@b/c"):
        assert masked(text) == text
    assert masked_message("Authorization: Bearer abc, Basic dXNl") == "Authorization: Bearer ***, Basic ***"
    assert masked_message("no http://user:pw@host:1/v1 there") == "no http://***@host:1/v1 there"


def test_passwords_of_addresses_and_secret_fields_of_requests_are_hidden():
    hide_address("https://me:pass%2Fword@host/v1")
    hide_address("https://token-123@host/v1")
    hide_fields({"api_key": "field-secret", "extra": {"Authorization": "Bearer deep-secret"}, "top_p": 1})
    hide_fields({"stop": "a long stop text", "max_tokens": "seventeen"})
    assert masked("pass/word token-123 field-secret deep-secret") == "*** *** *** ***"
    assert masked("a long stop text, seventeen") == "a long stop text, seventeen"


@pytest.mark.parametrize(
    "key",
    [
        "sk-proxy-abcdef",
        "gsk_Abcdefgh12",
        "0123456789abcdef0123456789abcdef",  # an account at Cloudflare's gateway
        "Zx81kQpL0mN4vB7tR2yW",
        "4f9c1b2a-77de-4c1f-9b7e-0a1b2c3d4e5f",
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.e30.c2lnbmF0dXJlMTIz",
    ],
)
def test_keys_in_the_path_of_an_address_are_hidden(key):
    hide_address(f"https://gateway.example/v1/{key}/openai/chat/completions")
    assert masked(f"at /v1/{key}/openai, {key.upper()}") == "at /v1/***/openai, ***"


@pytest.mark.parametrize(
    "path",
    [
        "/openai/deployments/gpt-4o-mini-2024-07-18/chat/completions",
        "/models/Meta-Llama-3.1-70B-Instruct-Turbo/v1",
        "/serving-endpoints/databricks-claude-3-7-sonnet/invocations",
        "/v1beta/openai/qwen2.5-coder-0.5b-instruct-q4_k_m",
        "/skills/sk-learn",
        "/text/chatcompletionv2",
    ],
)
def test_ordinary_parts_of_a_path_are_kept(path):
    hide_address(f"https://host{path}")
    assert masked(f"see {path}") == f"see {path}"


def test_a_secret_in_other_case_is_masked(monkeypatch):
    """As a gateway writes a header's value in small letters."""
    monkeypatch.setenv(redact.KEY, "SK-Secret-42")
    assert masked("sk-secret-42 and Sk-SECRET-42") == "*** and ***"


def test_headers_of_the_openai_package_are_hidden(monkeypatch):
    monkeypatch.setenv(redact.HEADERS, "X-Gateway: gate-secret\nAuthorization: Bearer other-secret")
    assert masked("gate-secret, other-secret, Bearer other-secret") == "***, ***, ***"


def test_no_file_is_written_with_a_secret(monkeypatch, tmp_path):
    monkeypatch.setenv(redact.KEY, SECRET)
    write_text_atomic(tmp_path / "text", f"text {SECRET}")
    write_json_atomic(tmp_path / "json", {"a": SECRET})
    append_jsonl(tmp_path / "lines", {"a": SECRET})
    rewrite_jsonl(tmp_path / "more", [{"a": SECRET}])
    for path in tmp_path.iterdir():
        assert "secret" not in path.read_text() and "***" in path.read_text()


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "mcp", "api_key": "SECRETSECRET"}]},
        {"headers": {"Authorization": ["Bearer SECRETSECRET"]}},
        {"authorization": {"value": "SECRETSECRET"}},
    ],
)
def test_secrets_in_lists_and_below_a_secret_name_are_hidden(fields):
    hide_fields(fields)
    assert masked("the key SECRETSECRET") == "the key ***"


@pytest.mark.parametrize(
    "query",
    [
        "api-key=QUERYSECRET",
        "api-version=1&subscription-key=QUERYSECRET",
        "key=QUERYSECRET",
        "code=QUERYSECRET",
        "jwt=QUERYSECRET",
        "auth=QUERYSECRET",
        "X-Amz-Signature=QUERYSECRET",
    ],
)
def test_keys_in_the_query_of_an_address_are_hidden(query):
    url = f"https://host/v1?{query}&api-version=2024-02-01"
    hide_address(url)
    assert "QUERYSECRET" not in masked(url) and masked(url).endswith("=***&api-version=2024-02-01")


@pytest.mark.parametrize(
    "name",
    [
        "token",
        "user_token",
        "X-Key",
        "private_key",
        "session-token",
        "passwd",
        "credentials",
        "Cookie",
        "pwd",
    ],
)
def test_further_names_of_secret_fields(name):
    hide_fields(
        {"extra": {name: "FIELDSECRET"}, "stop_token_ids": ["kept-as-it-is"], "eos_token": "kept-too"}
    )
    assert masked("FIELDSECRET kept-as-it-is kept-too") == "*** kept-as-it-is kept-too"


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "https_proxy", "ALL_PROXY", "OPENAI_BASE_URL"])
@pytest.mark.parametrize(
    "address",
    ["http://me:PROXY%2FPASS@host:80/a@b", "me:PROXY%2FPASS@host", "ht!tp://me:PROXY%2FPASS@host:x"],
)
def test_passwords_of_proxies_are_hidden(monkeypatch, variable, address):
    """A proxy repeats the header in its refusal; an address may be one that no client takes."""
    monkeypatch.setenv(variable, address)
    header = base64.b64encode(b"me:PROXY/PASS").decode().rstrip("=")
    assert masked(f"PROXY/PASS, Basic {header}, host:80/a") == "***, Basic ***, host:80/a"


def test_a_key_in_the_fragment_of_an_address_is_hidden():
    hide_address("https://host/v1#key=FRAGMENTSECRET")
    assert masked("FRAGMENTSECRET v1 host") == "*** v1 host"
