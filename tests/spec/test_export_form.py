"""What `--output` means."""

from pathlib import Path

import pytest

from elastic.errors import JobSpecError
from elastic.spec.values import ExportForm, ExportTarget, export_target


@pytest.mark.parametrize(
    ("output", "framework", "form", "path"),
    [
        ("out/m.keras", "keras", ExportForm.KERAS_FILE, "out/m.keras"),
        ("out/m", "keras", ExportForm.KERAS_FILE, "out/m.keras"),
        ("out/m-v1.2", "keras", ExportForm.KERAS_FILE, "out/m-v1.2.keras"),
        ("out/m.savedmodel", "keras", ExportForm.SAVED_MODEL, "out/m.savedmodel"),
        ("out/m/", "keras", ExportForm.SAVED_MODEL, "out/m"),
        ("out/m.safetensors", "torch", ExportForm.SAFETENSORS, "out/m.safetensors"),
        ("out/m-v1.2", "torch", ExportForm.SAFETENSORS, "out/m-v1.2.safetensors"),
    ],
)
def test_the_suffix_decides(output, framework, form, path):
    assert export_target(output, framework) == ExportTarget(form, Path(path))


@pytest.mark.parametrize(
    ("output", "framework", "message"),
    [
        ("m.keras", "torch", "asks for .keras, and a torch model is not written as that: "
         "name it .safetensors"),
        ("m/", "torch", "asks for a folder, and a torch model is not written as that: "
         "name it .safetensors"),
        ("m.savedmodel", "torch", "asks for .savedmodel, and a torch model is not written as "
         "that: name it .safetensors"),
        ("m.safetensors", "keras", "asks for .safetensors, and a keras model is not written as "
         "that: name it .keras or .savedmodel, or end it with / for a folder"),
        ("m.h5", "keras", "asks for .h5, and a keras model is not written as that: "
         "name it .keras or .savedmodel, or end it with / for a folder"),
        ("m.pt", "torch", "asks for .pt, and a torch model is not written as that: "
         "name it .safetensors"),
    ],
)  # fmt: skip
def test_a_suffix_that_cannot_be_written_is_refused(output, framework, message):
    with pytest.raises(JobSpecError) as refusal:
        export_target(output, framework)
    assert str(refusal.value) == f"--output={output} {message}"
