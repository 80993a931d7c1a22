"""The scripted customer of WebShop on the real engine (what holds everywhere: ../test_demonstrations.py)."""

import pytest
from r3l.envs.base.demonstrations import CAREFUL
from r3l.envs.base.experts import criticise, having_read
from r3l.envs.webshop import WebShop
from r3l.envs.webshop.engine.synthetic import OPTIONS
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


ERRING = {"low": 0.45, "high": 0.65, "systematic": 0.8, "overlook": 0.6}


def test_the_critic_says_the_same_of_plain_pages():
    """The observation plain marks neither buttons nor chosen options; the critic must do without."""
    options = {"observation": "plain"}
    engine, dialogue = WebShop().create(options), WebShop().dialogue("full", 10, options)
    causes = set()
    for d in WebShop().demonstrations(range(40), 1, 10, ERRING):
        first = engine.reset(d.task).text
        answers = tuple((step.action, engine.step(step.action).text) for step in d.steps)
        if d.error:
            answers = (*answers[:-1], (answers[-1][0], ""))
        critique = dialogue.critique(Transcript(d.task, first, answers, d.success, d.error))
        assert critique == d.critique
        causes.add(critique.cause.rpartition(" not ")[2])
    assert {"chosen", "offered", "price above the limit", "no needless step"} <= causes


@pytest.mark.parametrize("observation", ["rich", "plain"])
def test_an_expert_knows_which_options_are_chosen(observation):
    """A second value of one option replaces the first; a new search drops both."""
    d = next(d for d in DEMONSTRATOR.demonstrations(range(60), 1, CAREFUL, 10) if len(d.steps) == 5)
    search, product, value = [step.action for step in d.steps[:3]]
    engine = WebShop().create({"observation": observation})
    expert = WebshopExpert.at_start(engine.reset(d.task).text)

    def take(action):
        expert.observe(action, engine.step(action).text)
        return expert.chosen

    assert (take(search), take(product)) == ((), ())
    group = next(values for values in OPTIONS.values() if value[len("click[") : -1] in values)
    first, second, _ = [option for option in expert.offered if option in group]
    other = next(option for option in expert.offered if option not in group)
    assert take(f"click[{first}]") == (first,)
    assert take(f"click[{second.upper()}]") == (second,)
    assert set(take(f"click[{other}]")) == {second, other}
    assert set(take("click[features]")) == set(take("click[< prev]")) == {second, other}
    assert take("click[nothing]") == expert.chosen
    take("click[< prev]")
    assert take(product) == ()
