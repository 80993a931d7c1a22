#!/usr/bin/env bash
# Run by snakemake in the environment of r3l.yaml, from the top of the checkout.
set -euo pipefail
python -m pip install -e '.[dev]'
