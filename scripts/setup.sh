#!/usr/bin/env bash
# Prepares what a Makefile target needs and says what it does; with nothing to do it says so and takes about a second.
#
#   scripts/setup.sh build    the Rust toolchain, a C compiler, python3
#   scripts/setup.sh test     the above, and the real clients that the black-box suites drive (under .venv-test/ and tests/npm/)
#
# It never touches anything outside the checkout, but for Debian packages that are missing, and those only as root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: %s\n' "$*" >&2; exit 1; }

# Says which programs are missing as Debian packages, and installs them where that is allowed.
need_programs() {
  local missing=() pair
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair#*:}")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    say "installing Debian packages: ${missing[*]}"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  else
    die "missing: ${missing[*]}. Install them (Debian: apt-get install ${missing[*]}) and run this again."
  fi
}

# Programs of a package that would also start a service: that is kept from starting, the tests run it themselves.
need_programs_only() {
  local guard=/usr/sbin/policy-rc.d made=
  if [ ! -e "$guard" ]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' > "$guard" && chmod +x "$guard"
  fi
  need_programs "$@"
  [ -z "$made" ] || rm -f "$guard"
}

# As need_programs, for modules of the system's Python. They are large and only tests use them: where there is no package, it is only said.
need_modules() {
  local missing=() pair
  for pair in "$@"; do
    /usr/bin/python3 -c "import ${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair#*:}")
  done
  [ "${#missing[@]}" -eq 0 ] && return 0
  say "installing Debian packages: ${missing[*]}"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null; } \
    || say "could not install ${missing[*]}: the tests that need them are skipped."
}

need_rust() {
  [ -f "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"
  command -v cargo >/dev/null 2>&1 || die "cargo is missing: install Rust with rustup; the version is in rust-toolchain.toml."
  if command -v rustup >/dev/null 2>&1; then
    local channel
    channel=$(sed -n 's/^channel *= *"\(.*\)"/\1/p' rust-toolchain.toml)
    if ! rustup toolchain list | grep -q "^$channel"; then
      say "installing the Rust toolchain $channel"
      rustup toolchain install "$channel" --profile minimal --component rustfmt --component clippy
    fi
  fi
}

# The requirement file and this interpreter's version decide whether an environment is up to date.
stamp_of() { { cat "$1"; "$python" --version; } | sha256sum | cut -d' ' -f1; }

need_uv() {
  [ -x .venv-test/uv/bin/uv ] && return 0
  say "making .venv-test/uv (the installer of the other environments)"
  rm -rf .venv-test/uv
  "$python" -m venv .venv-test/uv || die "python3 cannot make virtual environments (Debian: apt-get install python3-venv)."
  .venv-test/uv/bin/python -m pip install --quiet --disable-pip-version-check 'uv==0.13.7' \
    || .venv-test/uv/bin/python -m pip install --quiet --disable-pip-version-check uv
}

# One environment per client: their dependencies do not agree with each other.
need_venv() {
  local name=$1 file="tests/requirements/$1.txt" home=".venv-test/$1" want
  want=$(stamp_of "$file")
  if [ -f "$home/.stamp" ] && [ "$(cat "$home/.stamp")" = "$want" ]; then return 0; fi
  need_uv
  say "installing $home from $file"
  [ -x "$home/bin/python" ] || .venv-test/uv/bin/uv venv --quiet --python "$python" "$home"
  .venv-test/uv/bin/uv pip sync --quiet --python "$home/bin/python" "$file"
  echo "$want" > "$home/.stamp"
}

need_npm() {
  local home=$1 want
  want=$(cat "$home/package.json" "$home/package-lock.json" | sha256sum | cut -d' ' -f1)
  if [ -f "$home/node_modules/.stamp" ] && [ "$(cat "$home/node_modules/.stamp")" = "$want" ]; then return 0; fi
  say "installing what $home/package.json names"
  (cd "$home" && npm ci --silent --no-audit --no-fund)
  echo "$want" > "$home/node_modules/.stamp"
}

mode=${1:-test}
need_programs cc:gcc make:make python3:python3
need_rust
python=$(command -v python3)
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || die "python3 is older than 3.10: the Azure SDK needs a newer one."
case $mode in
  build) ;;
  test)
    need_programs node:nodejs npm:npm
    # The partition tests make a network namespace and cut it: only root can.
    [ "$(id -u)" != 0 ] || need_programs nft:nftables ip:iproute2
    # Services of jobs are tested with the real ssh; without its programs those tests are skipped.
    [ "$(id -u)" != 0 ] || need_programs_only ssh:openssh-client sshd:openssh-server
    # Distributed jobs are tested with the system's own PyTorch and Open MPI; without root those tests are skipped.
    [ "$(id -u)" != 0 ] || need_programs mpirun:openmpi-bin mpicc:libopenmpi-dev
    [ "$(id -u)" != 0 ] || need_modules torch:python3-torch mpi4py:python3-mpi4py
    # Real engines for the tests of environments, started on sockets of their own; NEAP_TEST_ENGINES=none does without.
    [ "$(id -u)" != 0 ] || [ "${NEAP_TEST_ENGINES:-}" = none ] || need_programs dockerd:docker.io podman:podman runc:runc conmon:conmon
    for name in sdk sdk-older mgmt mgmt-older az s3 mlflow; do need_venv "$name"; done
    # The management client, and the storage emulator of the data suite.
    need_npm tests/npm
    need_npm tests/azurite
    command -v cargo-nextest >/dev/null 2>&1 || say "cargo-nextest is not installed: the Rust tests run under 'cargo test' instead."
    ;;
  *) die "unknown mode '$mode': build or test." ;;
esac
say "ready ($mode)"
