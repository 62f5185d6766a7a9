"""Jobs of the counting model with rows, that wait at a gate until all faults have been made."""

from support.datasets import prepared_dir
from support.local_job import make_spec
from support.thread_job import ZOO

NUM_RECORDS = 203  # no multiple of a task or a minibatch
NUM_EPOCHS = 3


def max_workers_of(seed):
    return 1 + seed % 3


def gated_spec(gate, seed, life=None, **settings):
    """A job that passes the gate for its last epoch alone."""
    return make_spec(
        "embedded_counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={
            "num_records": NUM_RECORDS,
            "delay_ms": 10,
            "gate": str(gate.folder),
            "free_records": NUM_RECORDS * (NUM_EPOCHS - 1),
            "life": life,
        },
        num_epochs=NUM_EPOCHS,
        num_workers=f"1:{max_workers_of(seed)}",
        seed=seed,
        # To wait at the gate is no hang.
        hang_timeout=3600,
        **settings,
    )
