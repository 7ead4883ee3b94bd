"""A job that tells of itself with MLflow. It is told nothing: everything comes from the environment."""

import json
import os
import sys
from pathlib import Path

import mlflow

mlflow.log_param("rate", 0.5)
mlflow.log_params({"layers": 3, "kind": "tree"})
for step in range(5):
    mlflow.log_metric("loss", 1.0 / (step + 1), step=step)
mlflow.log_metrics({"accuracy": 0.75, "odd": float("nan")}, step=4)
mlflow.set_tag("team", "tide")

Path("note.txt").write_text("from the job\n")
mlflow.log_artifact("note.txt", "notes")
mlflow.log_dict({"a": 1}, "config/settings.json")
Path("outputs/kept.txt").write_text("by the agent\n")

with mlflow.start_run(nested=True, run_name="child") as child:
    mlflow.log_metric("loss", 9.0)

run = mlflow.active_run()
print(json.dumps({"run": run.info.run_id, "experiment": run.info.experiment_id, "child": child.info.run_id}))
assert run.info.run_id == os.environ["AZUREML_RUN_ID"] == os.environ["MLFLOW_RUN_ID_SEEN"]
assert run.info.experiment_id == os.environ["MLFLOW_EXPERIMENT_ID"]
if len(sys.argv) > 1:
    Path(sys.argv[1]).write_text(os.environ["MLFLOW_TRACKING_TOKEN"])
