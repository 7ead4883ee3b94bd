#!/usr/bin/env bash
# Checks what the program depends on (cargo deny, deny.toml): licences, sources and bans always, advisories where a
# database can be had. Installs cargo-deny under target/tools if it is missing; that takes some minutes, once.
#
#   NEAP_ADVISORY_DB=DIR   a folder with a clone of https://github.com/rustsec/advisory-db, for machines that cannot fetch it
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

VERSION=0.20.2
TOOLS=$PWD/target/tools
export PATH=$TOOLS/bin:$PATH

if ! command -v cargo-deny >/dev/null 2>&1; then
  echo "deny: installing cargo-deny $VERSION under target/tools"
  cargo install --quiet --locked --root "$TOOLS" "cargo-deny@$VERSION"
fi

cargo deny --locked check licenses sources bans

# cargo deny wants its databases under names of its own: a copy of a recorded one is put where it looks.
recorded=${NEAP_ADVISORY_DB:-}
if [ -n "$recorded" ]; then
  [ -d "$recorded/crates" ] || { echo "deny: NEAP_ADVISORY_DB=$recorded is not a clone of advisory-db: it has no folder 'crates'" >&2; exit 1; }
  home=$(mktemp -d)
  trap 'rm -rf "$home"' EXIT
  config=$home/deny.toml
  # A clone of the clone, made as if it came from the internet, without the internet.
  sed "s|^\[advisories\]|[advisories]\ndb-path = \"$home/db\"\ndb-urls = [\"file://$(realpath "$recorded")\"]|" deny.toml > "$config"
  echo "deny: advisories as of $(git -C "$recorded" log -1 --format=%cs 2>/dev/null || echo 'an unknown day'), from $recorded"
  cargo deny --locked check --config "$config" advisories
elif cargo deny --locked fetch db >/dev/null 2>&1; then
  cargo deny --locked check --disable-fetch advisories
else
  echo "deny: ADVISORIES WERE NOT CHECKED: https://github.com/rustsec/advisory-db cannot be reached, and NEAP_ADVISORY_DB names no clone of it" >&2
fi
