"""Logs one point at a time and says so after each was acknowledged, until it has logged as many as it was told to."""

import sys

import mlflow

for step in range(int(sys.argv[1])):
    mlflow.log_metric("beat", float(step), step=step)
    print(f"acknowledged {step}", flush=True)
