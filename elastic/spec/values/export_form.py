"""In which form `--output` is written: its suffix says so, within what the framework has."""

from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Final

from elastic.errors import JobSpecError


class ExportForm(Enum):
    """What a trained model is exported as."""

    KERAS_FILE = auto()
    SAVED_MODEL = auto()
    """TensorFlow's folder, which is served without the model's Python code."""
    SAFETENSORS = auto()


SAVED_MODEL_SUFFIX: Final = ".savedmodel"
_FORMS: Final = {
    "keras": {".keras": ExportForm.KERAS_FILE, SAVED_MODEL_SUFFIX: ExportForm.SAVED_MODEL},
    "torch": {".safetensors": ExportForm.SAFETENSORS},
}
_DEFAULT: Final = {"keras": ".keras", "torch": ".safetensors"}
_OTHERS: Final = frozenset(
    {".h5", ".hdf5", ".pt", ".pth", ".pkl", ".pickle", ".onnx", ".pb", ".ckpt", ".bin", ".tflite"}
)
"""Endings of models of forms that nobody here writes; any other ending is part of a name."""


@dataclass(frozen=True, slots=True)
class ExportTarget:
    """What is written, and where exactly."""

    form: ExportForm
    path: Path


def is_folder_form(output: str) -> bool:
    """Whether a folder is asked for: by its suffix, or by a `/` at the end."""
    return output.endswith(("/", SAVED_MODEL_SUFFIX))


def export_target(output: str, framework: str) -> ExportTarget:
    """What `--output` means for a model of a framework.

    Args:
        output: The setting, not empty; a name without one of the suffixes gets the usual one.
        framework: `keras` or `torch`.

    Raises:
        JobSpecError: The suffix is that of another framework, or of no form that is written.
    """
    path, forms = Path(output), _FORMS[framework]
    if output.endswith("/") and ExportForm.SAVED_MODEL in forms.values():
        return ExportTarget(ExportForm.SAVED_MODEL, path)
    form = forms.get(path.suffix)
    if form is not None:
        return ExportTarget(form, path)
    foreign = {suffix for each in _FORMS.values() for suffix in each} | _OTHERS
    if output.endswith("/") or path.suffix in foreign:
        what = "a folder" if output.endswith("/") else path.suffix
        known = " or ".join(forms) + (", or end it with / for a folder" if len(forms) > 1 else "")
        raise JobSpecError(
            f"--output={output} asks for {what}, and a {framework} model is not written as that: "
            f"name it {known}"
        )
    suffix = _DEFAULT[framework]
    return ExportTarget(forms[suffix], path.with_name(path.name + suffix))
