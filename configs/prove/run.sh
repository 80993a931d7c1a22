#!/bin/sh
# On the machine with the GPU: installs what it lacks beside its own packages, once, then proves (r3l prove gpu).
set -e
kit=$(cd "$(dirname "$0")" && pwd)
if [ ! -d "$kit/site" ]; then
    rm -rf "$kit/.site"
    python3 -m pip install --quiet --no-index --no-deps --no-compile --target "$kit/.site" "$kit"/wheels/*.whl
    mv "$kit/.site" "$kit/site"
fi
export PYTHONPATH="$kit/source:$kit/site" R3L_CACHE="$kit/cache" R3L_MODEL_WHEEL="$kit/model.whl" HF_HUB_OFFLINE=1
R3L_COMMIT=$(cat "$kit/commit")
export R3L_COMMIT
cd "$kit/source"
exec python3 -m r3l.cli prove gpu "$@"
