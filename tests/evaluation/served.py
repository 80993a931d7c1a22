"""Evaluations by a server whose answers depend on the seed alone."""

from chat_server import completion

ONE = ["alfworld", "--tier", "nano", "--task-set", "one/train", "--set", "evaluation.temperature=0"]


def sum_by_seed(request, before):
    """A right or a wrong sum, by the seed alone."""
    return completion(f"{request['seed'] % 7} + 1 = 2\n\\boxed{{{request['seed'] % 5}}}\n")
