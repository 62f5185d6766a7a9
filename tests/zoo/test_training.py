"""The language models learn, in jobs of two workers; the classifiers do in `test_entries`."""

import pytest
from support.datasets import prepared_dir
from support.local_job import LocalJob, make_spec

SMALL_LM = {"d_model": 64, "n_layers": 2, "n_heads": 4, "context": 32}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("framework", ["torch", "keras"])
def test_language_model_learns_more_than_byte_frequencies(framework, tmp_path):
    data_dir = prepared_dir("char_lm", context=32, num_windows=3200, num_test_windows=320)
    spec = make_spec(
        f"char_lm.char_lm_{framework}.CustomModel",
        data_dir / "train.npz",
        evaluation_data_dir=str(data_dir / "test.npz"),
        minibatch_size=16,
        records_per_task=160,
        num_workers=2,
        model_params=SMALL_LM,
        # Two, since what one teaches depends on how stale the gradients are.
        num_epochs=2,
        use_async=True,
    )
    with LocalJob(spec, tmp_path) as job:
        metrics = job.succeed().metrics
    # A model of byte frequencies alone stays above 3.1 nats; the untrained one is at 5.5.
    assert metrics["loss"] < 2.9, metrics
