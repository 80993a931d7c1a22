"""lm-eval's tasks score stored responses as our evaluator does, item by item (needs the `eval` extra)."""

from pathlib import Path

import pytest

from r3l.core.benchmark import Reply
from r3l.envs.math.benchmarks import MathBenchmark

pytest.importorskip("lm_eval", reason="pip install -e '.[eval]'")
FOLDER = Path(__file__).resolve().parents[3] / "envs" / "math" / "lm_eval"


def test_the_same_items_prompts_and_grades():
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(FOLDER), include_defaults=False)
    assert {"r3l_gsm8k", "r3l_math500", "r3l_olympiadbench", "r3l_amc23"} <= set(manager.all_tasks)
    task = manager.load(["r3l_math500"])["tasks"]["r3l_math500"]
    docs = list(task.test_docs())
    with MathBenchmark() as benchmark:
        questions = benchmark.items("math500")
        assert [doc["sha256"] for doc in docs] == [q.sha256 for q in questions]
        for k, (doc, item) in enumerate(zip(docs[:24], questions, strict=False)):
            assert task.doc_to_text(doc) == benchmark.opening(item)[0].content
            answer = item.gold if k % 3 else questions[k + 1].gold
            response = f"It is {answer}" if k % 4 == 0 else f"So \\boxed{{{answer}}}."
            ours = benchmark.grade(item, [Reply(response, "end", None)]).grades
            theirs = task.process_results(doc, [response])
            assert theirs == {rule: float(grade.correct) for rule, grade in ours.items()}
