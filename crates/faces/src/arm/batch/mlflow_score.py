"""Scores files with an MLflow model: what a batch deployment runs that has no scoring script of its own.

Each row of the result has the number of a row of a file, what the model says of it, and the file's name.
"""

import os

import mlflow.pyfunc
import pandas

model = None


def init():
    global model
    root = os.environ["AZUREML_MODEL_DIR"]
    found = [folder for folder, _, names in os.walk(root) if "MLmodel" in names]
    if not found:
        raise FileNotFoundError("the model has no file MLmodel: it is not an MLflow model")
    model = mlflow.pyfunc.load_model(min(found, key=len))


def run(mini_batch):
    if isinstance(mini_batch, pandas.DataFrame):
        return scored(mini_batch, "")
    return pandas.concat([scored(read(path), os.path.basename(path)) for path in mini_batch])


def read(path):
    name = path.lower()
    if name.endswith((".parquet", ".pqt")):
        return pandas.read_parquet(path)
    if name.endswith((".jsonl", ".ndjson")):
        return pandas.read_json(path, lines=True)
    if name.endswith(".json"):
        return pandas.read_json(path)
    if name.endswith((".csv", ".tsv", ".txt")):
        return pandas.read_csv(path, sep="\t" if name.endswith(".tsv") else ",")
    raise ValueError(f"{os.path.basename(path)} is no table: .csv, .tsv, .txt, .parquet, .json and .jsonl are read. Other files need a scoring script.")


def scored(table, name):
    said = model.predict(table)
    if isinstance(said, pandas.DataFrame):
        said = said.iloc[:, 0] if said.shape[1] == 1 else said.values.tolist()
    if hasattr(said, "tolist"):
        said = said.tolist()
    return pandas.DataFrame({"row": range(len(said)), "prediction": said, "file": name})
