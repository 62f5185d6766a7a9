"""Jobs that evaluate and predict with the single-pass models, and what comes of them."""

import csv
import json
import sys

import numpy as np
import safetensors.torch
import torch

from elastic.data.predictions import MANIFEST
from elastic.spec.job import JobSpec
from support.thread_job import ZOO


def model_module():
    if str(ZOO) not in sys.path:
        sys.path.insert(0, str(ZOO))
    import single_pass

    return single_pass


def write_records(path, num_records=50, deeds=None, seed=0):
    """Records of the single-pass models; `deeds` maps some of them to what they do."""
    rng = np.random.default_rng(seed)
    deed = np.zeros(num_records, np.int64)
    for index, value in (deeds or {}).items():
        deed[index] = value
    np.savez(
        path,
        index=np.arange(num_records),
        x=rng.normal(size=(num_records, 3)).astype(np.float32),
        label=rng.integers(0, 2, num_records),
        deed=deed,
    )
    return path


def save_model(path, seed=7):
    """Write the torch model as an export has it; returns the model."""
    torch.manual_seed(seed)
    model = model_module().CustomModel()
    safetensors.torch.save_file(model.state_dict(), path)
    return model.eval()


def features_of(data):
    arrays = np.load(data)
    return {"x": torch.from_numpy(arrays["x"]), "index": torch.from_numpy(arrays["index"])}


def logits_of(model, data):
    """What the model gives for all records at once."""
    with torch.no_grad():
        return model(features_of(data)).numpy()


def metrics_of(model, data):
    """A plain evaluation of all records at once."""
    module = model_module()
    labels = torch.from_numpy(np.load(data)["label"])
    with torch.no_grad():
        logits = model(features_of(data))
        return {
            "loss": float(module.loss(labels, logits)),
            "accuracy": float(module.accuracy(labels, logits).mean()),
        }


def single_pass_spec(kind, data, model, **settings):
    """A job of the torch model for the local platform."""
    defaults = {
        "kind": kind,
        "platform": "local",
        "model_zoo": str(ZOO),
        "model_def": "single_pass.CustomModel",
        "model": str(model),
        {"evaluate": "evaluation_data_dir", "predict": "prediction_data_dir"}[kind]: str(data),
        "job_name": "job",
        "minibatch_size": 4,
        "records_per_task": 10,
        "num_workers": "2",
    }
    return JobSpec(**defaults | settings)


def predicted_rows(folder):
    """The rows of a whole folder of CSV files by index; each is there once, or this fails."""
    manifest = json.loads((folder / MANIFEST).read_text())
    files = [part["file"] for part in manifest["parts"] if part["file"]]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*files, MANIFEST])
    rows = {}
    for part in manifest["parts"]:
        if not part["file"]:
            assert part["num_predictions"] == 0
            continue
        with (folder / part["file"]).open(newline="") as file:
            found = list(csv.DictReader(file))
        assert len(found) == part["num_predictions"]
        for row in found:
            index = int(row["index"])
            assert row["shard"] == part["shard"]
            assert part["start"] <= index < part["end"]
            assert (row["shard"], index) not in rows
            rows[row["shard"], index] = row
    assert len(rows) == manifest["predictions"]
    return {index: row for (_, index), row in sorted(rows.items())}


def logits_in(rows):
    """The predictions of rows, as an array in the order of the records."""
    return np.array([[float(r["prediction_0"]), float(r["prediction_1"])] for r in rows.values()])
