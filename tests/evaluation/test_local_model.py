"""Replies of a model on this machine: the nano architecture with random weights, loaded from a folder."""

import pytest

from r3l.core.environment import Message
from r3l.core.errors import CheckpointError, ConfigError
from r3l.evaluation.local_model import LocalModel

DIALOGS = [
    [Message("user", "see a mug 1")],
    [Message("system", "desk"), Message("user", "see"), Message("assistant", "you"), Message("user", "pen")],
]
ADDRESSES = [(0, "benchmark", "a", 0), (0, "benchmark", "b", 1)]


@pytest.fixture(scope="module")
def folder(nano, tmp_path_factory):
    where = tmp_path_factory.mktemp("models") / "tiny"
    model, tokenizer = nano
    model.save_pretrained(where)
    tokenizer.save_pretrained(where)
    return str(where)


def test_a_reply_depends_on_its_address_and_not_on_its_company(folder):
    model = LocalModel(folder, temperature=1.0, max_tokens=8)
    together = model.respond(DIALOGS, ADDRESSES)
    alone = [model.respond([d], [a])[0] for d, a in zip(DIALOGS, ADDRESSES, strict=True)]
    assert together == alone and model.name == "tiny"
    assert all(reply.stop in ("end", "length") and 1 <= reply.tokens <= 8 for reply in together)
    assert model.respond(DIALOGS[:1], [(1, "benchmark", "a", 0)]) != together[:1]


def test_greedy_replies_need_no_seed(folder):
    model = LocalModel(folder, temperature=0.0, max_tokens=8)
    assert model.respond(DIALOGS[:1], ADDRESSES[:1]) == model.respond(DIALOGS[:1], ADDRESSES[1:])


def test_a_dialog_without_room(folder):
    model = LocalModel(folder, temperature=0.0, max_tokens=8)
    long = [Message("user", "mug " * model._policy.max_context)]
    assert model.respond([long], ADDRESSES[:1])[0].stop == "context"


def test_what_cannot_be_used(folder):
    with pytest.raises(ConfigError, match="--max-tokens is 999999, but .* has room for"):
        LocalModel(folder, temperature=0.0, max_tokens=999999)
    with pytest.raises(CheckpointError, match="no stored model"):
        LocalModel("nonesuch", temperature=0.0, max_tokens=8)
