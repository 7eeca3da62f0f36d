#!/usr/bin/env bash
# Runs the verbs tests on Soft-RoCE, in a throw-away VM, in one call: the VM is emulated where there is no KVM.
#
#   tools/roce_tests.sh [BUILD_DIR [REPEATS]]      (default: build/dev 1)
#
# Says how many runs of its programs passed, also when the time ($FARLIFT_ROCE_SECONDS, 600) was over first.
# $GTEST_FILTER chooses cases, as for any test program.
#
# The VM runner `roce-vm` is looked for in $FARLIFT_ROCE_VM, on PATH, and at ../shared/lab/roce-vm beside the checkout.
# Exit status: 0 passed, 1 failed, 77 skipped (the last line says why).
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/dev}
repeats=${2:-1}
skip() { echo "roce_tests: skipped: $*"; exit 77; }

vm=${FARLIFT_ROCE_VM:-}
[ -n "$vm" ] || vm=$(command -v roce-vm || true)
[ -n "$vm" ] || vm=$root/../shared/lab/roce-vm
[ -x "$vm" ] || skip "no roce-vm (set FARLIFT_ROCE_VM, or put it on PATH)"
[ "$(id -u)" = 0 ] || skip "roce-vm needs root"
programs=("$build/src/core/fabric/ofi/ofi_verbs_test" "$build/tests/fabric/kv_verbs_test")
for program in "${programs[@]}"; do
  [ -x "$program" ] || { echo "roce_tests: $program is missing; build ${program##*/} first" >&2; exit 1; }
done

output=$(mktemp)
trap 'rm -f "$output"' EXIT
status=0
# shellcheck disable=SC2016
"$vm" -t "${FARLIFT_ROCE_SECONDS:-600}" bash -c '
  status=0 repeats=$1; shift
  for program in "$@"; do "$program" --gtest_repeat="$repeats" || status=$?; done
  exit $status' roce_tests "$repeats" "${programs[@]}" 2>&1 | tee "$output" || status=${PIPESTATUS[0]}
# A run ends with how many tests passed; a failed one says how many did not behind it.
ended=$(grep -c '^\[  PASSED  \]' "$output" || true)
failed=$(grep -cE '^ *[0-9]+ FAILED TESTS?' "$output" || true)
echo "roce_tests: $((ended - failed)) of $((repeats * ${#programs[@]})) runs passed, $failed failed"
case $status in
  0) echo "roce_tests: passed" ;;
  125) skip "the VM did not start here" ;;
  124) echo "roce_tests: ran out of time" >&2; exit 1 ;;
  *) echo "roce_tests: failed ($status)" >&2; exit 1 ;;
esac
