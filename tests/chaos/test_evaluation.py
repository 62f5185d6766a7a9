"""Evaluation while training goes on, and at the end: each record once, on one version."""

import re

import numpy as np
import pytest
import torch
from support.datasets import load_records, prepared_dir, zoo_module
from support.local_job import LocalJob, make_spec
from support.thread_job import ZOO

from elastic.checkpoints.cuts import cut_path, read_cut


def plain_evaluation(cut, records):
    module = zoo_module("digits.digits_torch")
    model = module.CustomModel()
    state = {name: torch.from_numpy(np.array(a)) for name, a in cut.parameters.items()}
    model.load_state_dict(state)
    model.eval()
    pairs = list(module.dataset_fn(records, "evaluation"))
    features, labels = (torch.stack([pair[i] for pair in pairs]) for i in (0, 1))
    with torch.no_grad():
        predictions = model(features)
    return {
        "loss": float(module.loss(labels, predictions)),
        "accuracy": float(module.accuracy(labels, predictions)),
    }


def test_versions_are_evaluated_while_training_goes_on(tmp_path):
    data = prepared_dir("digits")
    spec = make_spec(
        "digits.digits_torch.CustomModel",
        data / "train.npz",
        evaluation_data_dir=str(data / "test.npz"),
        num_workers=2,
        grads_to_wait=1,
        num_epochs=4,
        minibatch_size=16,
        records_per_task=64,
        # Eighteen occasions for the two that are asked for, whatever the workers' luck.
        evaluation_steps=20,
        evaluation_start_delay_secs=0,
    )
    with LocalJob(spec, tmp_path) as job:
        status = job.succeed()
        cut = job.cut()
    evaluated = [event.message for event in status.events if event.kind == "Evaluated"]
    versions = [int(re.match(r"version (\d+) on 359 records", text)[1]) for text in evaluated]
    assert versions == sorted(set(versions))
    assert len(versions) >= 3
    assert versions[-1] == cut.version
    assert all(version % 20 == 0 for version in versions[:1])
    expected = plain_evaluation(cut, load_records(data / "test.npz"))
    for name, value in expected.items():
        assert abs(status.metrics[name] - value) < 1e-5, name


def test_versions_are_evaluated_exactly_whoever_is_killed_meanwhile(tmp_path):
    """What a plain loop gives for the checkpoint of the very version, while others are trained."""
    data = prepared_dir("digits")
    at_work = tmp_path / "at_work"
    at_work.mkdir()
    spec = make_spec(
        "slow_digits.CustomModel",
        data / "train.npz",
        model_zoo=str(ZOO),
        model_params={"folder": str(at_work)},
        evaluation_data_dir=str(data / "test.npz"),
        checkpoint_dir=str(tmp_path / "checkpoints"),
        # Of every version, since which ones are evaluated is the workers' luck.
        checkpoint_steps=1,
        num_workers="3",
        grads_to_wait=1,
        num_epochs=2,
        minibatch_size=32,
        records_per_task=96,
        evaluation_steps=10,
        evaluation_start_delay_secs=0,
    )
    with LocalJob(spec, tmp_path) as job:
        for _ in range(4):
            for path in at_work.iterdir():
                path.unlink()
            job.wait_until(lambda _: list(at_work.iterdir()))
            index = int(next(at_work.iterdir()).name.split("-")[1])
            assert job.kill_one("worker", index)
        status = job.succeed()
    assert status.workers_lost == 4
    versions = [each.version for each in status.evaluations]
    assert versions == sorted(set(versions))
    assert len(versions) >= 3
    assert min(versions) < status.progress.model_version == max(versions)
    records = load_records(data / "test.npz")
    for evaluation in status.evaluations:
        cut = read_cut(cut_path(tmp_path / "checkpoints", evaluation.version))
        assert evaluation.metrics == pytest.approx(plain_evaluation(cut, records), abs=1e-6)
