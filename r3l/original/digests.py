"""sha256 of prompt templates of the R3L release.

Computed from a public index's copy of the texts, and only for templates. The commit of a clone is the better
proof; r3l.original.texts accepts either. The reflection and guidance templates are the same in all
environments.
"""

FOLDER = "trinity/common/workflows/envs/R3L"

_OF_ONE = {
    "alfworld/prompts/alfworld_system.j2": "d3c9a654ff03b6077fef70f5cee780b84944e07097d54712146c60301b529afc",
    "alfworld/prompts/critique.j2": "04a6997b6ac53712880abce8ebcee39d3ff51f7e22c0ac240f13ac4b266c3bdc",
    "dapo/prompts/critique.j2": "259b421827e7493b54c4151f5a1efd9eea651b7e1813b2f82fcc661e9ab244e3",
    "dapo/prompts/math_system.j2": "03dbf26bff6be3c5965c6c72ee9b63da816ef0947b2d36efa1aaea6ac7ece749",
    "scienceworld/prompts/sciworld_system.j2": (
        "846bb240e66be8cf479c4efd7e3e18c6e2bc824f509d77eb4ba1684e80ea0c50"
    ),
    "webshop/prompts/webshop_system.j2": "7a46534e97a21caf209ccbdef70fc13c9fc202d82f73dc4b51edb091b9e206cd",
}
_OF_ALL = {
    "reflection.j2": "f56fbea6cc261986e055a70693b587d39153bb09a3f77a927b1486a1e12c1923",
    "self_correction.j2": "3eb2a915cc41e3e6e2088dfc1e46be172d8832eac6ea64b1b685b47dad7ebeea",
}

DIGESTS = {f"{FOLDER}/{path}": digest for path, digest in _OF_ONE.items()} | {
    f"{FOLDER}/{environment}/prompts/{name}": digest
    for environment in ("alfworld", "dapo", "scienceworld", "webshop")
    for name, digest in _OF_ALL.items()
}
