"""Jobs whose rows are on parameter servers, and go on with others or with another store."""

import numpy as np
import pytest
from support.datasets import prepared_dir
from support.local_job import LocalJob, make_spec
from support.rows import TABLE, check_counts, check_lives, counted_parts, rows_of
from support.thread_job import ZOO

from elastic.checkpoints.table_files import exported_tables, values_of
from elastic.rows.base import CANDIDATES, Table

NUM_RECORDS = 90
WAYS = {
    "2-servers": {"embedding_store": "ps", "num_ps": 2},
    "3-servers": {"embedding_store": "ps", "num_ps": 3},
    "memory": {"embedding_store": "memory"},
    "redis": {"embedding_store": "redis"},
}


def trained(folder, way, life=None, **settings):
    """The checkpoint of a job, and its cut."""
    spec = make_spec(
        "embedded_counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={"num_records": NUM_RECORDS, "life": life or {}},
        **WAYS[way],
        **settings,
    )
    with LocalJob(spec, folder) as job:
        status = job.succeed()
        [size], cut = status.tables, job.cut()
        assert size.rows == len(rows_of(cut.rows))
        return status.checkpoint, cut


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2-servers", "3-servers"),
        ("memory", "2-servers"),
        ("2-servers", "memory"),
        ("2-servers", "redis"),
        ("redis", "memory"),
    ],
)
def test_a_checkpoint_is_loaded_wherever_rows_are_then(before, after, tmp_path):
    checkpoint, cut = trained(tmp_path / "first", before)
    check_counts(cut, NUM_RECORDS, 1)
    _, cut = trained(tmp_path / "second", after, checkpoint_filename_for_init=checkpoint)
    check_counts(cut, NUM_RECORDS, 2)


def test_a_job_is_resumed_from_store_to_store_as_if_there_were_one(tmp_path):
    """Rows, slots and parameters are those of a job in memory, bit by bit."""
    ways = ["memory", "redis", "3-servers", "2-servers", "redis", "memory"]
    for num_epochs, way in enumerate(ways, 1):
        settings = {"num_epochs": num_epochs, "resume": num_epochs > 1}
        _, cut = trained(tmp_path / "resumed", way, num_workers=1, **settings)
    _, expected = trained(tmp_path / "whole", "memory", num_workers=1, num_epochs=len(ways))
    check_counts(cut, NUM_RECORDS, len(ways))
    assert bytes_of(cut.rows) == bytes_of(expected.rows)
    for name, values in expected.parameters.items():
        assert cut.parameters[name].tobytes() == values.tobytes()


def test_rows_come_late_and_go_as_in_memory_wherever_they_are(tmp_path):
    """Neither admission nor expiry depends on which server has a row, and nobody counts anew."""
    life = {"admit_after": 2, "expire_after": 16}
    ways = ["memory", "3-servers", "2-servers", "redis"]
    for num_epochs, way in enumerate(ways, 1):
        settings = {"num_epochs": num_epochs, "resume": num_epochs > 1}
        _, cut = trained(tmp_path / "resumed", way, life, num_workers=1, **settings)
    _, expected = trained(tmp_path / "whole", "memory", life, num_workers=1, num_epochs=len(ways))
    check_lives(cut, NUM_RECORDS, len(ways), life)
    for table in (TABLE, TABLE + CANDIDATES):
        assert bytes_of(cut.rows, table) == bytes_of(expected.rows, table)


def bytes_of(rows, table=TABLE):
    return {row_id: row.tobytes() for row_id, row in rows_of(rows, table).items()}


@pytest.mark.parametrize(("before", "after"), [("2-servers", "memory"), ("memory", "2-servers")])
def test_rows_in_fewer_bits_count_each_record_wherever_they_are(before, after, tmp_path):
    """The counts are numbers of which both dtypes have all that come."""
    first = tmp_path / "first"
    checkpoint, cut = trained(first, before, life={"row_dtype": "int8"})
    assert cut.rows.forms[0].table.row_dtype == "int8"
    values = values_in(cut)
    assert np.stack(list(values.values())) == pytest.approx(1.0, abs=1e-3)
    _, cut = trained(
        tmp_path / "second",
        after,
        life={"row_dtype": "bfloat16"},
        checkpoint_filename_for_init=checkpoint,
    )
    assert np.abs(counted_parts(cut, NUM_RECORDS) - 2).max() < 1e-3
    values = values_in(cut)
    assert sorted(values) == list(range(NUM_RECORDS))
    assert np.stack(list(values.values())) == pytest.approx(2.0, rel=0.02)


def values_in(cut):
    """The rows of a cut as everybody sees them."""
    [form] = cut.rows.forms
    found = {}
    for part in values_of(form.table, cut.rows):
        found |= zip(part.ids.tolist(), part.values, strict=True)
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "settings", [{"grads_to_wait": 2}, {"use_async": True, "embedding_staleness": 4}]
)
def test_evaluations_read_rows_of_their_version_while_training_goes_on(settings, tmp_path):
    """In what is exported at the end, parameters and rows are of one version as well."""
    data = prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz"
    output = tmp_path / "model.safetensors"
    spec = make_spec(
        "embedded_counting_torch.CustomModel",
        data,
        model_zoo=str(ZOO),
        model_params={"num_records": NUM_RECORDS},
        num_epochs=6,
        num_workers=2,
        minibatch_size=4,
        evaluation_data_dir=str(data),
        evaluation_steps=2,
        evaluation_throttle_secs=0,
        evaluation_start_delay_secs=0,
        output=str(output),
        **WAYS["2-servers"],
        **settings,
    )
    with LocalJob(spec, tmp_path) as job:
        status = job.succeed()
    assert len(status.evaluations) > 3
    assert [each.metrics["apart"] for each in status.evaluations] == pytest.approx(
        [0.0] * len(status.evaluations), abs=1e-3
    )
    exported = rows_of(exported_tables(output, [Table("counted", 2, "zeros")]))
    assert sorted(exported) == list(range(NUM_RECORDS))
    assert np.stack(list(exported.values())) == pytest.approx(6.0, abs=1e-3)
