"""A trial: its loss is what was tried, told to the tracking endpoint with the standard library alone."""

import json
import os
import pathlib
import ssl
import sys
import time
import urllib.request

tried, out = sys.argv[1], pathlib.Path(sys.argv[2])
point = {"run_id": os.environ["MLFLOW_RUN_ID"], "key": "loss", "value": float(tried), "step": 0, "timestamp": int(time.time() * 1000)}
request = urllib.request.Request(
    os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/runs/log-metric",
    data=json.dumps(point).encode(),
    headers={"Authorization": "Bearer " + os.environ["MLFLOW_TRACKING_TOKEN"], "Content-Type": "application/json"},
)
urllib.request.urlopen(request, context=ssl.create_default_context(cafile=os.environ["REQUESTS_CA_BUNDLE"])).read()
(out / "tried.txt").write_text(tried)
