#!/usr/bin/env bash
# The whole story on one machine: a cluster is declared, rises from zero for a training job, and falls back to zero.
# Uses a data folder of its own (.neap-demo), stops what it started, and can be run again.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

NEAP=${NEAP_BIN:-target/release/neap}
export NEAP_HOME="$PWD/.neap-demo"
cluster=demo-cluster
job="two-moons-$(date +%s)"

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ]; then bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'; else bold='' dim='' red='' plain=''; fi
step=0
tell() { step=$((step + 1)); printf '\n%s%d. %s%s\n' "$bold" "$step" "$*" "$plain"; }
note() { printf '%s   %s%s\n' "$dim" "$*" "$plain"; }
fail() { printf '%sdemo: %s%s\n' "$red" "$*" "$plain" >&2; exit 1; }
# Shows the command as a person would type it, then runs it.
run() { printf '%s   $ neap %s%s\n' "$dim" "$*" "$plain"; "$NEAP" "$@"; }

[ -x "$NEAP" ] || fail "$NEAP is not there: run 'make demo', which builds it."

finish() {
  local rc=$?
  trap - EXIT
  if [ -f "$NEAP_HOME/server.json" ]; then "$NEAP" down >/dev/null 2>&1 || true; fi
  if [ "$rc" -ne 0 ]; then
    printf '%sdemo: stopped with exit code %d; the end of the server log:%s\n' "$red" "$rc" "$plain" >&2
    tail -n 30 "$NEAP_HOME/logs/server.log" >&2 2>/dev/null || true
  fi
  exit "$rc"
}
trap finish EXIT
trap 'exit 130' INT TERM

# wait_for SECONDS WHAT COMMAND...: until the command succeeds; says what did not happen if it never does.
wait_for() {
  local limit=$1 what=$2; shift 2
  local deadline=$(($(date +%s) + limit))
  until "$@"; do
    [ "$(date +%s)" -lt "$deadline" ] || fail "after $limit s still not so: $what"
    sleep 0.1
  done
}
node_count() { "$NEAP" compute list-nodes -n "$cluster" -o json --query 'length(@)'; }
nodes_are() { [ "$(node_count)" = "$1" ]; }
some_node_is() { "$NEAP" compute list-nodes -n "$cluster" -o json | grep -q "\"$1\""; }
job_is() { [ "$("$NEAP" job show -n "$job" -o tsv --query status)" = "$1" ]; }
job_left_the_queue() { ! job_is Queued && ! job_is NotStarted; }

if [ -d "$NEAP_HOME" ]; then
  "$NEAP" down >/dev/null 2>&1 || true
  rm -rf "$NEAP_HOME"
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

tell "Start a server. Its data lives in .neap-demo, its certificate authority is made on the spot."
run up --data "$NEAP_HOME" --listen "127.0.0.1:$port" --detach
run status

tell "Declare a cluster of zero to two nodes, from the YAML file that az ml takes."
sed 's/^/   | /' examples/cluster.yml
run compute create -f examples/cluster.yml -o table
nodes_are 0 || fail "the new cluster should be at zero nodes"
note "Declared, and at zero nodes: nothing runs yet."

tell "Submit a training job: a small neural network in plain Python."
run job create -f examples/train/job.yml --name "$job" -o none
wait_for 30 "a node rose for the job" nodes_are 1
wait_for 30 "the job left the queue" job_left_the_queue
run compute show -n "$cluster" -o table
run compute list-nodes -n "$cluster" -o table
note "The cluster rose from zero because a job was waiting."

tell "Watch its log, line by line."
run job stream -n "$job"
job_is Completed || fail "the job did not complete"

tell "Fetch the result: the model from ./outputs, the report from the named output."
run job download -n "$job" --all --download-path "$NEAP_HOME/result"
report=$(find "$NEAP_HOME/result" -name report.md | head -n 1)
model=$(find "$NEAP_HOME/result" -name model.json | head -n 1)
[ -n "$report" ] && [ -n "$model" ] || fail "the download lacks report.md or model.json"
{ head -n 4 "$report"; tail -n 2 "$report"; } | sed 's/^/   | /'
note "model.json: $(wc -c < "$model") bytes"

tell "The node is idle now. After five seconds without work the cluster is at zero again."
if [ "$(node_count)" != 0 ]; then
  run compute list-nodes -n "$cluster" -o table
fi
wait_for 60 "the cluster is at zero again" nodes_are 0
run compute show -n "$cluster" -o table

tell "The Azure ML SDK works on it as it is:"
cat <<'TEXT'
   $ eval "$(neap env)"
   $ python
   >>> import os
   >>> from azure.ai.ml import MLClient
   >>> from azure.identity import DefaultAzureCredential
   >>> ml = MLClient(DefaultAzureCredential(), os.environ["NEAP_SUBSCRIPTION_ID"],
   ...               os.environ["NEAP_RESOURCE_GROUP"], os.environ["NEAP_WORKSPACE"])
   >>> [c.name for c in ml.compute.list()]
   ['demo-cluster']
TEXT
if [ -x .venv-test/sdk/bin/python ]; then
  note "The SDK is installed in .venv-test/sdk, so here is examples/sdk.py for real:"
  ( eval "$("$NEAP" env)"; .venv-test/sdk/bin/python -W ignore examples/sdk.py ) 2>&1 | sed 's/^/   | /'
else
  note "(make test installs the SDK; examples/sdk.py is the whole program.)"
fi

tell "Stop it, and check the log from the first event to the last."
run down
run verify

printf '\n%sThat was the whole story.%s Your own server: %s up\n' "$bold" "$plain" "$NEAP"
