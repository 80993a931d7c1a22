"""The scripted customer of WebShop on the real engine (what holds everywhere: ../test_demonstrations.py)."""

from r3l.envs.base.demonstrations import CAREFUL
from r3l.envs.base.experts import criticise, having_read
from r3l.envs.webshop import WebShop
from r3l.envs.webshop.expert import WebshopExpert, is_right, plan

from r3l.core.environment import Transcript

DEMONSTRATOR = WebShop().demonstrator()


def test_an_expert_follows_the_pages(task):
    d = next(iter(DEMONSTRATOR.demonstrations([0], 1, CAREFUL, 10)))
    answers = [(s.action, t.now.text) for s, t in zip(d.steps, d.steps[1:], strict=False)]
    for turn, step in enumerate(d.steps):
        expert = having_read(WebshopExpert.at_start(d.first.text), answers[:turn])
        assert step.action == plan(expert)[0] and is_right(expert, step.action)
    last = having_read(WebshopExpert.at_start(d.first.text), answers)
    assert last.missing == [] and plan(last) == ["click[buy now]"]


def test_the_dialogue_criticises_what_it_can_read():
    """A synthetic instruction is criticised from its pages; one of the original's is not."""
    dialogue = WebShop().dialogue("compact", 10)
    task = WebShop().tasks("nano/train")[0]
    first = WebShop().create({}).reset(task)
    ended = Transcript(task, first.text, (("search[nothing of the kind]", ""),), False, None)
    critique = dialogue.critique(ended)
    assert critique.turn == 0 and critique.suggestion.startswith("search[")
    other = Transcript(task, "Instruction:\ni need a long lasting pen", ended.answers, False, None)
    assert dialogue.critique(other) is None


def test_buying_where_nothing_can_be_bought_is_a_mistake_with_a_cause():
    """All options chosen, then back to the results, whose page has no buy button."""
    d = next(d for d in DEMONSTRATOR.demonstrations(range(60), 1, CAREFUL, 10) if len(d.steps) == 5)
    steps = [step.action for step in d.steps[:-1]] + ["click[< prev]", "click[buy now]"]
    engine, answers = WebShop().create({}), []
    engine.reset(d.task)
    for action in steps:
        answers.append((action, engine.step(action).text))
    transcript = Transcript(d.task, d.first.text, tuple(answers), False, None)
    critique = criticise(WebshopExpert.at_start(d.first.text), transcript, 10)
    assert (critique.turn, critique.cause) == (5, "click[buy now] does not help")
