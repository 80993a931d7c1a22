"""lm-eval itself runs our tasks: the same items, prompts, grades and score as our evaluator, item by item."""

from pathlib import Path

from r3l.envs.registry import find_environment

FOLDER = Path(__file__).parent / "lm_eval"
ITEMS = 24


def test_the_same_items_prompts_grades_and_score():
    from lm_eval import simple_evaluate  # not when tests are collected: a second
    from lm_eval.api.model import LM
    from lm_eval.tasks import TaskManager

    class Scripted(LM):
        """Gives its responses in the order of the questions, and keeps what it was asked."""

        def __init__(self, responses):
            super().__init__()
            self.responses = responses
            self.prompts = []

        def generate_until(self, requests, disable_tqdm=False):
            self.prompts = [request.args[0] for request in requests]
            return self.responses[: len(requests)]

        def loglikelihood(self, requests, disable_tqdm=False):
            raise AssertionError("our tasks are answered in text")

        loglikelihood_rolling = loglikelihood

    manager = TaskManager(include_path=str(FOLDER), include_defaults=False)
    assert {"r3l_gsm8k", "r3l_math500", "r3l_olympiadbench", "r3l_amc23"} <= set(manager.all_tasks)
    math = find_environment("math")
    asked = {"ask": "boxed", "turns": "whole", "attempts": 1}
    tasks = math.tasks("math500/test")
    golds = [task.payload["answer"] for task in tasks]
    answers = [golds[k] if k % 3 else golds[k + 1] for k in range(ITEMS)]  # every third is wrong
    responses = [f"It is {a}" if k % 4 == 0 else f"So \\boxed{{{a}}}." for k, a in enumerate(answers)]
    model = Scripted(responses)
    report = simple_evaluate(
        model, tasks=["r3l_math500"], limit=ITEMS, bootstrap_iters=0, task_manager=manager
    )
    dialogue = math.dialogue("full", 1, asked)
    engines = {rule: math.create(asked | {"extraction": rule}) for rule in ("strict", "flexible")}
    samples = report["samples"]["r3l_math500"]
    for prompt, response, task, sample in zip(model.prompts, responses, tasks, samples, strict=False):
        assert sample["doc"]["id"] == task.id
        for rule, engine in engines.items():
            (message,) = dialogue.opening(task, engine.reset(task))
            assert (prompt, sample[rule]) == (message.content, float(engine.step(response).success))
    scores = {rule: report["results"]["r3l_math500"][f"{rule},none"] for rule in ("strict", "flexible")}
    # A right answer in a box: 24 - 8 wrong - 6 without a box + 2 that are both. Of the other four right ones,
    # three have a number, which the flexible rule reads with its formula.
    assert scores == {"strict": 12 / 24, "flexible": 15 / 24}
