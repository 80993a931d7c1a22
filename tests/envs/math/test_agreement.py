"""The variants of the agreement table: ours accepts what a reader accepts."""

import csv

from grader_agreement import OUT, VARIANTS, ours


def test_ours_on_the_variants_by_hand():
    differs = [(pair.gold, pair.answer) for pair in VARIANTS if ours(pair.gold, pair.answer) != pair.right]
    assert not differs


def test_the_stored_table():
    rows = {(row["pairs_of"], row["grader"]): row for row in csv.DictReader(OUT.open())}
    accepted = {name: int(row["accepted"]) for (kind, name), row in rows.items() if kind == "gold_vs_gold"}
    assert accepted == {
        "ours": 500,
        "math_verify_documented": 500,
        "lm_eval_is_equiv": 500,
        "released_main_thread": 392,
        "released_in_actor": 0,
    }
