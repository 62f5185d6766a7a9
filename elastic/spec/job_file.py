"""Job files: a JobSpec as YAML, read by `--config` and written by `--dry_run`."""

from itertools import groupby
from pathlib import Path
from typing import Any, Final

import yaml

from elastic.errors import JobSpecError
from elastic.spec.describe import settings
from elastic.spec.job import JobSpec, WorkerRange
from elastic.spec.yaml_text import dump_value, load_value

FOLDER_FILE: Final = "elastic.yaml"
"""The job file that a folder has for itself, with paths that are meant from there."""


def read_job_file(path: Path) -> dict[str, Any]:
    """Read the keys and values of a job file, as written there.

    Raises:
        JobSpecError: The file cannot be read, is not YAML, or holds no keys with values.
    """
    try:
        content = load_value(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise JobSpecError(f"--config {path} cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise JobSpecError(f"{path} is not YAML: {_one_line(error)}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise JobSpecError(
            f"{path} holds a {type(content).__name__}: write one `setting: value` a line"
        )
    return {str(key): value for key, value in content.items()}


def _one_line(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"line {error.problem_mark.line + 1}: {error.problem}"
    return " ".join(str(error).split())


def write_job_file(spec: JobSpec) -> str:
    """The settings of a job as YAML under headings; `read_job_file` and JobSpec give it back."""
    values = job_values(spec)
    parts = []
    used = [setting for setting in settings() if setting.name in values]
    for group, members in groupby(used, key=lambda setting: setting.group):
        keys = {setting.name: values[setting.name] for setting in members}
        parts.append(f"# {group}\n{dump_value(keys)}")
    return "\n".join(parts)


def job_values(spec: JobSpec) -> dict[str, Any]:
    """The settings that have a meaning for a job, by their names, as a job file has them."""
    values = spec.model_dump(mode="json") | {"num_workers": _workers(spec.num_workers)}
    return {each.name: values[each.name] for each in settings() if spec.kind in each.kinds}


def _workers(workers: WorkerRange) -> int | str:
    return workers.minimum if workers.minimum == workers.maximum else str(workers)
