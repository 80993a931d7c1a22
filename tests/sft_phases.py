"""A short phase of an SFT recipe, for tests."""


def phase(first, lr):
    sizes = {"tasks": 16, "variants": 1, "steps": 2, "decay_steps": 2, "warmup_steps": 0}
    return {"first_task": first, "lr": lr, **sizes}
