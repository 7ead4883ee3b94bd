"""A trial for the sweep suite: logs a metric step by step over MLflow's REST, with the standard library alone."""

import json
import os
import ssl
import sys
import time
import urllib.request

x, pause = float(sys.argv[1]), float(sys.argv[2])
trust = ssl.create_default_context(cafile=os.environ["REQUESTS_CA_BUNDLE"])


def log(value, step):
    point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "score", "value": value, "step": step, "timestamp": int(time.time() * 1000)}
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
        data=json.dumps(point).encode(),
        headers={"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"], "Content-Type": "application/json"},
    )
    urllib.request.urlopen(request, context=trust).read()


if x > 90:
    sys.exit(f"{x} is too much")
for step in range(5):
    log(100 - (x - 3) ** 2 + step * 0.01, step)
    time.sleep(pause)
if len(sys.argv) > 3:
    with open(os.path.join(sys.argv[3], "x.txt"), "w") as file:
        file.write(str(x))
