#!/usr/bin/env bash
# Installs what Farlift needs from Debian packages. Idempotent: does nothing, and asks no mirror, when all is there.
#
#   tools/setup_debian.sh [--quiet] [runtime|build|test|fuzz|tidy]...     (default: the first three)
#
# runtime: what ./quickstart's processes link or start     build: compiler, CMake, libraries
# test:    what ./test needs besides                          fuzz, tidy: what ./test --fuzz (and --long), ./test --tidy need
# valkey-server comes from bookworm-backports, added as its own sources file that reuses this machine's own mirror.
set -euo pipefail

runtime=(valkey-server valkey-tools libisal2 libssl3 libfabric1 liburing2 libsqlite3-0 libpugixml1v5 python3)
build=(g++ cmake ninja-build ccache pkg-config git
       libexpected-dev libfmt-dev libisal-dev libssl-dev libfabric-dev libibverbs-dev
       libcli11-dev libnuma-dev liburing-dev libsqlite3-dev libpugixml-dev libboost-json1.81-dev python3-dev python3-pybind11 pybind11-dev python3-venv python3-pip)
test=(libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev libhiredis-dev openssl iproute2
      python3-pytest python3-pytest-timeout python3-numpy python3-redis
      valkey-sentinel procps python3-boto3 awscli rclone)
fuzz=(clang-14 libclang-rt-14-dev llvm-14)
tidy=(clang-14 clang-tidy-14 clang-format-14)

quiet=0; sets=()
for a in "$@"; do
  case $a in
    --quiet) quiet=1 ;;
    runtime|build|test|fuzz|tidy) sets+=("$a") ;;
    *) echo "setup_debian: unknown argument '$a' (want runtime, build, test, fuzz, tidy or --quiet)" >&2; exit 2 ;;
  esac
done
[ ${#sets[@]} -gt 0 ] || sets=(runtime build test)
say() { [ $quiet = 1 ] || echo "setup: $*"; }
die() { echo "setup: $*" >&2; exit 1; }

want=()
for s in "${sets[@]}"; do
  case $s in
    runtime) want+=("${runtime[@]}") ;;
    build) want+=("${build[@]}") ;;
    test) want+=("${test[@]}") ;;
    fuzz) want+=("${fuzz[@]}") ;;
    tidy) want+=("${tidy[@]}") ;;
  esac
done

missing=()
installed=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' 2>/dev/null | awk '$1 == "ii" {print $2}')
for p in "${want[@]}"; do
  grep -qxF "$p" <<< "$installed" || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || { say "all packages present"; exit 0; }

command -v apt-get > /dev/null || die "these packages are missing and this is no Debian system: ${missing[*]}"
sudo=''
if [ "$(id -u)" != 0 ]; then
  command -v sudo > /dev/null || die "run as root or install sudo; these packages are missing: ${missing[*]}"
  sudo=sudo
fi
code=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
[ "$code" = bookworm ] || say "made for Debian 12 (bookworm); this is '${code:-unknown}', trying anyway"

apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Dpkg::Use-Pty=0 -o DPkg::Lock::Timeout=300 "$@" > /dev/null; }
say "installing ${#missing[@]} packages: ${missing[*]}"
say "  updating package lists"
apt update || die "apt-get update failed; check this machine's package mirror"

backports=/etc/apt/sources.list.d/farlift-backports.sources
if [ "$code" = bookworm ] && ! apt-cache show valkey-server > /dev/null 2>&1; then
  mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | sed -n 1p)
  [ -n "$mirror" ] || die "found no bookworm mirror in this machine's apt sources; valkey-server needs bookworm-backports"
  say "  adding bookworm-backports from this machine's own mirror ($backports)"
  printf 'Types: deb\nURIs: %s\nSuites: bookworm-backports\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' "$mirror" |
    $sudo tee "$backports" > /dev/null
  apt update || die "apt-get update failed after adding $backports"
fi

# The server package starts a daemon on port 6379; we want the binary only.
policy=/usr/sbin/policy-rc.d made_policy=0
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy > /dev/null; $sudo chmod +x $policy; made_policy=1
fi
trap '[ $made_policy = 0 ] || $sudo rm -f $policy' EXIT
say "  downloading and unpacking (a few minutes on a bare machine)"
apt install --no-install-recommends "${missing[@]}" || die "apt-get install failed for: ${missing[*]}"
say "done"
