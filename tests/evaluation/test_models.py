"""Replies of a model on this machine: the nano architecture with random weights, loaded from a folder."""

import asyncio

import pytest

from r3l.core.errors import CheckpointError, ConfigError
from r3l.core.policy import FinishReason
from r3l.core.text import Message
from r3l.endpoint.options import EndpointOptions
from r3l.evaluation.agents import Dialog, ServedAgent
from r3l.evaluation.models import local_model, served_model

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


def replies(model, dialogs, addresses):
    async def one(addressed):
        dialog, address = addressed
        conversation = model.policy.open()
        for message in dialog:
            conversation.add(message)
        return await conversation.respond(model.sampling, address)

    return asyncio.run(model.gather(one, zip(dialogs, addresses, strict=True)))


def test_a_reply_depends_on_its_address_and_not_on_its_company(folder):
    model = local_model(folder, temperature=1.0, max_tokens=8)
    together = replies(model, DIALOGS, ADDRESSES)
    alone = [replies(model, [d], [a])[0] for d, a in zip(DIALOGS, ADDRESSES, strict=True)]
    assert [reply.text for reply in together] == [reply.text for reply in alone] and model.name == "tiny"
    assert all(reply.finish_reason in (FinishReason.END, FinishReason.LENGTH) for reply in together)
    assert all(1 <= reply.tokens.response <= 8 for reply in together)
    assert replies(model, DIALOGS[:1], [(1, "benchmark", "a", 0)])[0].text != together[0].text


def test_greedy_replies_need_no_seed(folder):
    model = local_model(folder, temperature=0.0, max_tokens=8)
    assert replies(model, DIALOGS[:1], ADDRESSES[:1]) == replies(model, DIALOGS[:1], ADDRESSES[1:])


def test_a_dialog_without_room(folder):
    model = local_model(folder, temperature=0.0, max_tokens=8)
    long = [Message("user", "mug " * model.policy.max_context)]
    assert replies(model, [long], ADDRESSES[:1])[0].finish_reason is FinishReason.CONTEXT


def test_what_cannot_be_used(folder):
    with pytest.raises(ConfigError, match="sampling.max_tokens is 999999, but .* has room for"):
        local_model(folder, temperature=0.0, max_tokens=999999)
    with pytest.raises(CheckpointError, match="no stored model"):
        local_model("nonesuch", temperature=0.0, max_tokens=8)
    with pytest.raises(ConfigError, match=r"--dialog is 'tokens', but questions \(--set\) are sent as messages"):
        served_model(ServedAgent(EndpointOptions("http://localhost", "m"), Dialog.TOKENS), 0.0, 8)
