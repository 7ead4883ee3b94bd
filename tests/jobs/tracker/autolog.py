"""Autologging: the job fits a model and says nothing else."""

import mlflow
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

mlflow.autolog()
features, labels = load_iris(return_X_y=True)
LogisticRegression(max_iter=200, C=0.7).fit(features, labels)
print("run", mlflow.last_active_run().info.run_id)
