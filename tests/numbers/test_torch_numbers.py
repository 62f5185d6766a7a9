"""Same numbers as without us: a job's parameters against a plain torch loop's."""

import json

import numpy as np
import pytest
import torch
from support.datasets import load_records, prepared_dir, zoo_module
from support.local_job import LocalJob, make_spec

from elastic.platforms.registry import THREAD_VARIABLES

SEED = 3
MINIBATCH = 16
ONE_THREAD = dict.fromkeys(THREAD_VARIABLES, "1")
"""Sums of other numbers of threads round otherwise, which Adam makes visible."""


@pytest.fixture(autouse=True, scope="module")
def one_torch_thread():
    """Compute the plain loop as the workers compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def batch_of(module, records):
    pairs = list(module.dataset_fn(records, "training"))
    return tuple(torch.stack([torch.as_tensor(pair[i]) for pair in pairs]) for i in (0, 1))


def build(module, **params):
    torch.manual_seed(SEED)
    model = module.CustomModel(**params)
    return model, module.optimizer(model.parameters())


def as_arrays(model):
    return {name: p.detach().numpy() for name, p in model.state_dict().items()}


def run_job(tmp_path, model_def, data, **settings):
    log = tmp_path / "commits.jsonl"
    spec = make_spec(
        model_def,
        data,
        minibatch_size=MINIBATCH,
        records_per_task=4 * MINIBATCH,
        seed=SEED,
        commit_log=str(log),
        envs=ONE_THREAD,
        **settings,
    )
    with LocalJob(spec, tmp_path) as job:
        job.succeed()
        cut = job.cut()
    groups = [json.loads(line)["records"] for line in log.read_text().splitlines()]
    return {**cut.parameters, **cut.state}, groups


def assert_same(trained, plain, tolerance):
    assert trained.keys() == plain.keys()
    for name, array in trained.items():
        np.testing.assert_allclose(array, plain[name], atol=tolerance, rtol=0, err_msg=name)


@pytest.mark.parametrize(
    ("model_def", "data_of", "params"),
    [
        pytest.param("digits.digits_torch", "digits", {}, id="adam"),
        pytest.param(
            "mnist_subclass.mnist_torch", "mnist_subclass", {"dropout": 0.0}, id="batch-norm"
        ),
    ],
)
def test_one_worker_equals_the_plain_loop(model_def, data_of, params, tmp_path):
    data = prepared_dir(data_of) / "train.npz"
    module = zoo_module(model_def)
    trained, _ = run_job(
        tmp_path, f"{model_def}.CustomModel", data, shuffle="none", model_params=params
    )

    records = load_records(data)
    model, optimizer = build(module, **params)
    for start in range(0, len(records), MINIBATCH):
        features, labels = batch_of(module, records[start : start + MINIBATCH])
        optimizer.zero_grad()
        module.loss(labels, model(features)).backward()
        optimizer.step()
    assert_same(trained, as_arrays(model), 1e-5)


def test_groups_of_two_workers_equal_the_loop_that_replays_them(tmp_path):
    data = prepared_dir("mnist_subclass") / "train.npz"
    module = zoo_module("mnist_subclass.mnist_torch")
    trained, groups = run_job(
        tmp_path,
        "mnist_subclass.mnist_torch.CustomModel",
        data,
        num_workers=2,
        grads_to_wait=2,
        model_params={"dropout": 0.0},
        shuffle="none",
    )
    records = load_records(data)
    assert sum(end - start for group in groups for _, start, end in group) == len(records)
    assert {len(group) for group in groups[:-1]} == {2}

    model, optimizer = build(module, dropout=0.0)
    for group in groups:
        replay_group(module, model, optimizer, records, group)
    assert_same(trained, as_arrays(model), 2e-5)


def replay_group(module, model, optimizer, records, group):
    """Average gradients and buffers over the group's minibatches, weighted by records."""
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    total = sum(end - start for _, start, end in group)
    gradients, buffers = {}, {}
    for _, start, end in group:
        for name, buffer in model.named_buffers():
            buffer.data.copy_(before[name])
        model.zero_grad()
        features, labels = batch_of(module, records[start:end])
        module.loss(labels, model(features)).backward()
        share = (end - start) / total
        for name, parameter in model.named_parameters():
            gradients[name] = gradients.get(name, 0) + share * parameter.grad
        for name, buffer in model.named_buffers():
            buffers[name] = buffers.get(name, 0) + share * buffer.detach().clone().double()
    for name, parameter in model.named_parameters():
        parameter.grad = gradients[name]
    for name, buffer in model.named_buffers():
        buffer.data.copy_(buffers[name].to(buffer.dtype))
    optimizer.step()
