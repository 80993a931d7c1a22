"""The texts that recipes teach: those of stored models stay what they were."""

import hashlib
import json

import pytest

from r3l.config.sft_recipe import load_config
from r3l.sft import demonstrations

# SHA-256 of the texts of the first four tasks (ScienceWorld: of the first), before hinted_share and
# plan_thoughts
BEFORE = {
    "alfworld-1.5m": "1b98031faf02bc1e16c9efa3da5b8917981b2598ce5a09a6358405edfea8c55e",
    "webshop-1.5m": "84253722f64fd8339f21aade193d650184814a19f8b576835c11807dfe30a68a",
    "scienceworld-1.5m": "83f209a7fe201de2cb1f9822b8ee54bd6507262c15dca23a9cd768bd9ceb5d29",
    "math-1.5m": "b0ca4ffd3b505bdd6cb46ca059e5fc22566cb7bf80639d33eb2599705ddc76b5",
    "puzzles-1.5m": "c93ee20126ec549555f5b221e62f1620952f1733c4d8fdad90c20fd49a3b626b",
}


def digest(documents):
    texts = [
        [str(kind), [[[[m.role, m.content] for m in messages], *answer] for messages, *answer in exchanges]]
        for kind, exchanges in documents
    ]
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()


@pytest.mark.parametrize("recipe", BEFORE)
def test_recipes_of_stored_models_teach_the_texts_that_they_taught(recipe):
    config = load_config(recipe)
    phase = config.phases[0].model_copy(update={"tasks": 1 if recipe == "scienceworld-1.5m" else 4})
    assert digest(demonstrations.play(config, phase, workers=0)) == BEFORE[recipe]
