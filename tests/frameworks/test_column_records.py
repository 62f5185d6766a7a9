"""What `dataset_fn` makes of columns of Parquet and of images, in both frameworks."""

from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from elastic.data import open_reader
from elastic.data.base import ReadTask
from elastic.frameworks import load_framework
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import Mode


def keras_pairs(field):
    return lambda dataset, mode: dataset.map(lambda record: (record[field], record["y"]))


def torch_pairs(field):
    return lambda dataset, mode: ((record[field], record["y"]) for record in dataset)


PAIRS = {"keras": keras_pairs, "torch": torch_pairs}


def first_batches(origin, framework, dataset_fn, **params):
    """Two minibatches: Keras runs the first one eagerly, and the second one compiled."""
    reader = open_reader(str(origin), 2, params, None)
    (shard,) = reader.create_shards()
    model_def = ModelDef("net", framework, print, print, print, dataset_fn)
    made = load_framework(framework)
    return [
        made.make_batch(
            model_def, list(reader.read_records(ReadTask(shard, start, start + 2))), Mode.TRAINING
        )
        for start in (0, 2)
    ]


def values(features):
    if isinstance(features, (list, tuple)):
        return [each.encode() if isinstance(each, str) else each for each in features]
    return features.numpy().tolist()


@pytest.mark.parametrize("framework", ["keras", "torch"])
@pytest.mark.parametrize(
    ("column", "dtype", "expected"),
    [
        pytest.param(pa.array([1, 2, 3, 4], pa.int32()), "int32", [1, 2, 3, 4], id="int"),
        pytest.param(pa.array([1, 2, 3, 4], pa.uint8()), "uint8", [1, 2, 3, 4], id="uint8"),
        pytest.param(pa.array([0.5] * 4, pa.float32()), "float32", [0.5] * 4, id="float"),
        pytest.param(pa.array([True, False] * 2), "bool", [True, False] * 2, id="bool"),
        pytest.param(
            pa.array([datetime(1970, 1, 1, 0, 0, 9)] * 4, pa.timestamp("ms")),
            "int64",
            [9000] * 4,
            id="time",
        ),
        pytest.param(
            pa.array(["a", "b", "é", "d"]), None, [b"a", b"b", "é".encode(), b"d"], id="text"
        ),
        pytest.param(
            pa.array([b"\xff", b"b", b"c", b""]), None, [b"\xff", b"b", b"c", b""], id="bytes"
        ),
        pytest.param(
            pa.array([[1.0, 2.0]] * 4, pa.list_(pa.float64(), 2)),
            "float64",
            [[1, 2]] * 4,
            id="array",
        ),
        pytest.param(pa.array([[1, 2]] * 4), "int64", [[1, 2]] * 4, id="list-of-equal-lengths"),
    ],
)
def test_columns(tmp_path, framework, column, dtype, expected):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column, "y": [0, 1, 0, 1]}), path)
    batches = first_batches(path, framework, PAIRS[framework]("x"))
    assert [value for batch in batches for value in values(batch.features)] == expected
    assert [batch.num_examples for batch in batches] == [2, 2]
    if dtype is not None:
        assert {batch.features.numpy().dtype for batch in batches} == {np.dtype(dtype)}


@pytest.mark.parametrize("framework", ["keras", "torch"])
def test_images(tmp_path, framework):
    for index in range(4):
        folder = tmp_path / f"class{index % 2}"
        folder.mkdir(exist_ok=True)
        shape = (index + 2, 3, 3)
        Image.fromarray(np.full(shape, index, np.uint8)).save(folder / f"{index}.png")

    def dataset_fn(dataset, mode):
        if framework == "keras":
            return dataset.map(lambda record: (record["image"], record["label"]))
        return [(record["image"], record["label"]) for record in dataset]

    batches = first_batches(tmp_path, framework, dataset_fn, size=4)
    seen = set()
    for batch in batches:
        assert tuple(batch.features.shape) == (2, 4, 4, 3)
        assert batch.features.numpy().dtype == np.uint8
        shades = batch.features.numpy().max(axis=(1, 2, 3))
        seen |= set(shades.tolist())
        assert (shades % 2).tolist() == batch.labels.numpy().tolist()
    assert seen == {0, 1, 2, 3}
