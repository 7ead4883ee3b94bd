#!/usr/bin/env bash
# Neap beside HyperQueue, Slurm, Ray and bare spawns, on this machine: installs what is missing, measures everything in
# one run, prints a table per benchmark and writes bench/results/peers.json; bench/chart.py draws it.
#
#   bench/peers/run.sh                  everything, ten to fifteen minutes
#   bench/peers/run.sh --quick          does everything work?
#   bench/peers/run.sh --help           more
#
# Debian packages are installed as root only; Python packages go to .venv-bench/ in the checkout. What cannot be
# installed is skipped, with the reason in the table. Nothing stays running.
set -euo pipefail
cd "$(dirname "$0")/../.."

say() { printf 'peers: %s\n' "$*" >&2; }

# Installs Debian packages without starting the services that they bring.
install_packages() {
  local guard=/usr/sbin/policy-rc.d made=
  say "installing Debian packages: $*"
  if [ ! -e "$guard" ]; then
    made=1
    printf '#!/bin/sh\nexit 101\n' > "$guard" && chmod +x "$guard"
  fi
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null 2>&1 \
    || say "apt-get could not install $*"
  [ -z "$made" ] || rm -f "$guard"
}

need_packages() {
  local missing=()
  PATH=$PATH:/usr/sbin
  command -v python3 >/dev/null || missing+=(python3)
  python3 -c 'import ensurepip' 2>/dev/null || missing+=(python3-venv)
  command -v munged >/dev/null || missing+=(munge)
  command -v slurmctld >/dev/null || missing+=(slurmctld)
  command -v slurmd >/dev/null || missing+=(slurmd)
  command -v sbatch >/dev/null || missing+=(slurm-client)
  [ "${#missing[@]}" -eq 0 ] && return 0
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    install_packages "${missing[@]}"
  else
    say "missing, and only root on Debian installs them here: ${missing[*]}"
  fi
}

need_wheels() {
  local wanted=bench/peers/requirements.txt home=.venv-bench stamp requirement whole=1
  stamp=$({ cat "$wanted"; python3 --version; } | sha256sum | cut -d' ' -f1)
  [ "$(cat "$home/.stamp" 2>/dev/null)" = "$stamp" ] && return 0
  say "installing the Python packages of $wanted into $home"
  [ -x "$home/bin/python" ] || python3 -m venv "$home" || { say "python3 cannot make $home"; return 0; }
  # One by one: a package that cannot be had here does not keep the others out.
  while read -r requirement; do
    "$home/bin/python" -m pip install --quiet --disable-pip-version-check "$requirement" \
      || { say "pip could not install $requirement"; whole=; }
  done < "$wanted"
  [ -z "$whole" ] || echo "$stamp" > "$home/.stamp"
}

need_spawn_rate() {
  [ -n "${SPAWN_RATE_BIN:-}" ] && return 0
  [ -f "${CARGO_HOME:-$HOME/.cargo}/env" ] && . "${CARGO_HOME:-$HOME/.cargo}/env"
  command -v cargo >/dev/null || return 0
  cargo build --quiet --release --locked -p neap-sandbox --example spawn_rate \
    || say "the bare isolated spawn could not be built"
}

need_packages
need_wheels
need_spawn_rate
# In this process: a signal then reaches the one that takes everything down.
exec python3 -B bench/peers/peers.py "$@"
