#!/bin/sh
# Measures a model and compares it with a stored baseline, the same way in any CI.
#
#   sh examples/ci/latency.sh [MODEL [OPTION of `llmphase profile` ...]]
#
# LLMPHASE_BASELINE   the baseline, a run file; without one this run becomes it (llmphase-baseline.json)
# LLMPHASE_OUT        folder of what is to be kept: result.csv, run.json, comparison.xml (llmphase-results)
# LLMPHASE_FAIL_OVER  the slowdown that is still accepted (10%)
#
# Exit codes are llmphase's: 0 no slowdown is shown, 1 a sure slowdown over the limit, 2 not like for like
# (another machine, engine or model) or wrong use, 3 could not measure.
set -eu

model=${1:-demo}
if [ $# -gt 0 ]; then shift; fi
if [ $# -eq 0 ]; then set -- -p 0,128,512 -n 32 -r 5; fi
out=${LLMPHASE_OUT:-llmphase-results}
baseline=${LLMPHASE_BASELINE:-llmphase-baseline.json}

rm -rf "$out/runs"
mkdir -p "$out"
# The baseline is a run file, not the CSV: it holds every sample, and which machine they come from.
LLMPHASE_DATA_DIR=$out llmphase profile "$model" "$@" --quiet -o "$out/result.csv"
cp "$out"/runs/2*.json "$out/run.json"

if [ ! -f "$baseline" ]; then
    cp "$out/run.json" "$baseline"
    echo "No baseline yet: this run is stored as $baseline."
    exit 0
fi
github=
if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then github=--github; fi
# shellcheck disable=SC2086 # an empty option is to vanish
exec llmphase compare "$baseline" "$out/run.json" --fail-over "${LLMPHASE_FAIL_OVER:-10%}" \
    -o "$out/comparison.xml" $github
