#!/usr/bin/env bash
# canary.sh MODULE RUNTIME ALLOCATOR WORD: loads the canary into a valkey-server the way ./test --asan and --tsan load the
# module. The sanitizer must end the server, and its report, with WORD in it, must be where log_path says.
set -euo pipefail
module=$1 runtime=$2 allocator=$3 word=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:detect_leaks=0:log_path=$work/report"
export TSAN_OPTIONS="${TSAN_OPTIONS:-}:halt_on_error=1:ignore_noninstrumented_modules=1:log_path=$work/report"
status=0
timeout 60 env LD_PRELOAD="$runtime $allocator" "${FARLIFT_VALKEY:-valkey-server}" --port 0 --dir "$work" --save '' \
  --loadmodule "$module" > "$work/log" 2>&1 || status=$?
if [ "$status" = 124 ]; then
  echo "the server went on"
  exit 1
fi
cat "$work"/report* > "$work/all" 2> /dev/null || true
grep -q "$word" "$work/all" || { echo "status $status and no report of: $word"; cat "$work/log" "$work/all"; exit 1; }
