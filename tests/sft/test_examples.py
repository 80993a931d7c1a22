"""The dialogs that SFT teaches are those that the method has."""

import asyncio

import pytest
from r3l.envs.registry import find_environment
from scripted import Scripted, rollout_context

from r3l.algorithm import R3L
from r3l.processes.pool import EnvironmentPool
from r3l.reflection import reflection_text
from r3l.sft.examples import documents_of


@pytest.fixture(scope="module")
def erring():
    """A demonstration with a retry that does not start over."""
    error_rates = {"low": 0.3, "high": 0.5, "systematic": 0.8, "overlook": 0.5}
    demonstrations = find_environment("alfworld").demonstrations(range(40), 1, 8, error_rates)
    return next(d for d in demonstrations if d.retry and d.critique.turn > 0 and not d.error)


@pytest.mark.parametrize(("style", "guidance"), [("compact", "suggestion"), ("full", "full_report")])
def test_examples_are_the_dialogs_that_the_method_has(erring, style, guidance):
    """R3L plays the demonstration's own responses: every message that it asks with is in an example, in
    order."""
    settings = {"group_size": 2, "guidance": guidance, "guidance_place": "user_turn"}
    responses = {
        "rollout": [step.response for step in erring.steps],
        "reflection": [reflection_text(erring.critique)],
        "retry": [step.response for step in erring.retry],
    }
    policy, pool = Scripted(responses), EnvironmentPool(find_environment("alfworld"), 0)
    asyncio.run(R3L(settings).explore(erring.task, rollout_context(policy, pool, max_turns=8, style=style)))
    pool.close()
    requests = {
        kind: [messages for address, messages in policy.asked if address[1] == kind] for kind in responses
    }

    dialogue = find_environment("alfworld").dialogue(style, 8)
    taught = dict(documents_of(dialogue, erring, guidance))
    episode = [messages for messages, _, _ in taught["episode"]]
    if style == "compact":
        assert episode == requests["rollout"] + requests["reflection"]
    else:
        assert episode == requests["rollout"] and [taught["reflection"][0][0]] == requests["reflection"]
    pivot = erring.critique.turn
    assert [messages for messages, _, _ in taught["retry"]][pivot:] == requests["retry"]
    assert [trained for _, _, trained in taught["retry"]] == [
        k >= pivot for k in range(pivot + len(erring.retry))
    ]


def test_a_hinted_episode_suggests_each_action_before_it_is_taken(erring):
    """With the actions and observations of the episode, under hints of one to six actions; only where asked
    for.

    Some begin with the action before, which is impossible by then. Thoughts say where the agent is, as others
    do.
    """
    dialogue = find_environment("alfworld").dialogue("compact", 8)
    assert "hinted" not in dict(documents_of(dialogue, erring, "suggestion"))
    taught = dict(documents_of(dialogue, erring, "suggestion", hinted=True, plan_thoughts=True))
    actions = [step.action for step in erring.steps]
    lengths, late, here = set(), 0, None
    for k, (hinted, plain) in enumerate(zip(taught["hinted"], taught["episode"], strict=False)):
        hint, _, prompt = hinted.messages[-1].content.partition("\n")
        suggested = hint.removeprefix("Hint: ").split(", then ")
        over = suggested[0] != actions[k]
        assert not over or suggested[0] not in erring.steps[k].now.admissible
        late += over
        lengths.add(len(suggested) - over)
        assert (
            suggested == actions[k - over : k - over + len(suggested)]
            and prompt == plain.messages[-1].content
        )
        thought = f"at {here}, {actions[k]}" if here else actions[k]
        assert hinted.response == f"<think>{thought}</think><action>{actions[k]}</action>" and hinted.trained
        here = actions[k].removeprefix("go to ") if actions[k].startswith("go to ") else here
    assert len(taught["hinted"]) == len(actions) and lengths <= set(range(1, 7)) and len(lengths) > 2
    assert late < len(actions) / 2
