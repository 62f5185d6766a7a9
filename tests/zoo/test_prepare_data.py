"""What `prepare_data` writes is what the models' docstrings promise."""

import csv
import subprocess
import sys
import zipfile
from collections import Counter

import numpy as np
import pytest
from support.datasets import MODEL_ZOO, load_arrays, prepared_dir, zoo_module


def load_table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("model", "image_shape", "dtype", "highest"),
    [
        ("digits", (8, 8), np.float32, 1),
        ("digits_cnn", (8, 8), np.float32, 1),
        ("mnist_subclass", (28, 28), np.uint8, 255),
    ],
)
def test_digits_are_split_80_to_20(model, image_shape, dtype, highest):
    directory = prepared_dir(model)
    train, test = (load_arrays(directory / f"{name}.npz") for name in ("train", "test"))
    assert train["image"].shape == (1438, *image_shape)
    assert test["image"].shape == (359, *image_shape)
    assert len(train["label"]) == 1438
    assert train["label"].dtype == np.int64
    assert train["image"].dtype == dtype
    assert train["image"].min() == 0
    assert 0.97 * highest <= train["image"].max() <= highest
    assert set(test["label"]) == set(range(10))


@pytest.mark.parametrize("model", ["digits", "mnist_subclass"])
def test_no_digit_is_in_both_parts(model):
    directory = prepared_dir(model)
    train, test = (load_arrays(directory / f"{name}.npz")["image"] for name in ("train", "test"))
    assert not {image.tobytes() for image in train} & {image.tobytes() for image in test}


def test_the_seed_chooses_the_split():
    first, same, other = (
        load_arrays(directory / "test.npz")["label"]
        for directory in (
            prepared_dir("digits"),
            prepared_dir("digits", seed=0),
            prepared_dir("digits", seed=1),
        )
    )
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_resizing_interpolates_between_pixel_centres():
    resize = zoo_module("mnist_subclass.prepare_data").resize
    ramp = np.tile([0.0, 1.0], (2, 1))
    np.testing.assert_allclose(resize(ramp[None], 4)[0], np.tile([0, 0.25, 0.75, 1], (4, 1)))
    np.testing.assert_allclose(resize(np.full((1, 8, 8), 0.5), 28), 0.5)


@pytest.mark.parametrize(
    ("model", "num_train", "num_test", "columns", "label", "classes"),
    [
        ("starter", 1200, 300, 3, "spiral", {"red", "green", "blue"}),
        ("iris", 120, 30, 5, "species", {"setosa", "versicolor", "virginica"}),
        ("breast_cancer", 455, 114, 31, "diagnosis", {"M", "B"}),
    ],
)
def test_tables_are_split_and_hold_numbers(model, num_train, num_test, columns, label, classes):
    parts = [load_table(prepared_dir(model) / f"{name}.csv") for name in ("train", "test")]
    assert [len(rows) for rows in parts] == [num_train, num_test]
    for row in [row for rows in parts for row in rows]:
        assert len(row) == columns
        assert row[label] in classes
        assert all(np.isfinite(float(text)) for name, text in row.items() if name != label)


def test_passages_are_balanced_and_in_one_part_only():
    parts = [load_table(prepared_dir("text_classifier") / f"{n}.csv") for n in ("train", "test")]
    for rows, count in zip(parts, (240, 60), strict=True):
        assert set(Counter(row["area"] for row in rows).values()) == {count}
        assert all(row["text"].count("\n") == 7 for row in rows)
    assert set(Counter(row["area"] for row in parts[0])) == set(
        zoo_module("text_classifier.text_classifier_torch").AREAS
    )
    train, test = ({(row["text"], row["area"]) for row in rows} for rows in parts)
    assert not train & test


def test_more_passages_than_there_are_is_an_error(tmp_path):
    prepare = zoo_module("text_classifier.prepare_data").prepare
    with pytest.raises(ValueError, match="fewer than the 1000000 asked for"):
        prepare(tmp_path, per_area=10**6)


def test_windows_hold_different_text_in_both_parts():
    directory = prepared_dir("char_lm", context=32, num_windows=3200, num_test_windows=320)
    train, test = (load_arrays(directory / f"{name}.npz")["window"] for name in ("train", "test"))
    assert train.shape == (3200, 33)
    assert test.shape == (320, 33)
    assert train.dtype == np.uint8
    shared = {w.tobytes() for w in train} & {w.tobytes() for w in test}
    # Runs of blanks and the like are in many files.
    assert len(shared) < 0.05 * len(test)


def test_more_windows_than_there_are_is_an_error(tmp_path):
    prepare = zoo_module("char_lm.prepare_data").prepare
    with pytest.raises(ValueError, match="fewer than the 1000000000 asked for"):
        prepare(tmp_path, num_windows=10**9)


def test_arrays_are_stored_uncompressed():
    with zipfile.ZipFile(prepared_dir("digits") / "train.npz") as file:
        assert {entry.compress_type for entry in file.infolist()} == {zipfile.ZIP_STORED}


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(["-m", "model_zoo.counting.prepare_data"], id="module"),
        pytest.param([str(MODEL_ZOO / "counting" / "prepare_data.py")], id="script"),
    ],
)
def test_prepare_data_runs_as_a_command(command, tmp_path):
    subprocess.run(
        [sys.executable, *command, tmp_path / "out", "--num_records", "5"],
        cwd=MODEL_ZOO.parent,
        check=True,
    )
    index = load_arrays(tmp_path / "out" / "train.npz")["index"]
    np.testing.assert_array_equal(index, np.arange(5))
    assert index.dtype == np.int64
