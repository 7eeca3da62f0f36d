#!/usr/bin/env bash
# Runs the verbs tests on Soft-RoCE, in a throw-away VM, in one call: the VM is emulated where there is no KVM.
#
#   tools/roce_tests.sh [BUILD_DIR [REPEATS]]      (default: build/dev 1)
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
test=$build/src/core/fabric/ofi/ofi_verbs_test
[ -x "$test" ] || { echo "roce_tests: $test is missing; build the target ofi_verbs_test first" >&2; exit 1; }

status=0
"$vm" -t "${FARLIFT_ROCE_SECONDS:-600}" "$test" --gtest_repeat="$repeats" || status=$?
case $status in
  0) echo "roce_tests: passed" ;;
  125) skip "the VM did not start here" ;;
  124) echo "roce_tests: ran out of time" >&2; exit 1 ;;
  *) echo "roce_tests: failed ($status)" >&2; exit 1 ;;
esac
