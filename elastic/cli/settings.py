"""From flags, job file and environment to one `JobSpec`, or to all that is wrong with them."""

import os
import re
import secrets
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import click
from pydantic import ValidationError

from elastic.cli.flags import flag_as_typed
from elastic.cli.platform import PLATFORM_VARIABLE
from elastic.errors import DataError, JobSpecError
from elastic.spec.cluster_forms import parse_volumes, state_volume
from elastic.spec.describe import Setting, problem_text, settings
from elastic.spec.job import MAX_JOB_NAME_LENGTH, JobSpec, Place, PlatformName
from elastic.spec.job_file import known_name, nearest_setting, read_job_file
from elastic.spec.origins import absolute_origin

_NAME_SUFFIX_LENGTH: Final = 4
_ASYNC_ONLY: Final = ("lr_staleness_modulation", "max_staleness")
_PLANNED: Final = ("tensorboard_log_dir", "callbacks", "prediction_outputs_processor")
"""Known from ElasticDL and accepted; nothing reads them yet, and nothing is dropped in silence."""
_RESULTS: Final = ("checkpoint_dir", "output", "commit_log", "tensorboard_log_dir")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_PATH_SIGN: Final = re.compile(r"[/*?~\[]")


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's value as somebody gave it; `label` says where: a flag, or a key of a file."""

    value: Any
    label: str


def resolve(given: Mapping[str, Given], problems: Iterable[str] = ()) -> JobSpec:
    """Validate what was given, with the defaults for the rest.

    Args:
        given: Setting name → value.
        problems: What is known to be wrong already; told together with what is found here.

    Raises:
        JobSpecError: With one line per problem.
    """
    found = list(problems)
    try:
        spec = JobSpec(**{name: item.value for name, item in given.items()})
    except ValidationError as error:
        found += [
            problem_text(item, lambda name: given[name].label if name in given else f"--{name}")
            for item in error.errors()
        ]
    if not found:
        return spec
    lines = [line for problem in found for line in problem.splitlines()]
    if len(lines) == 1:
        raise JobSpecError(lines[0])
    raise JobSpecError("\n  ".join([f"{len(lines)} settings cannot be used:", *lines]))


def from_environment() -> dict[str, Given]:
    """The platform, where the environment names one."""
    name = os.environ.get(PLATFORM_VARIABLE)
    return {"platform": Given(name, PLATFORM_VARIABLE)} if name else {}


def from_file(path: Path) -> tuple[dict[str, Given], list[str]]:
    """The settings of a job file, and what is wrong with its keys.

    Raises:
        JobSpecError: The file cannot be read as a mapping.
    """
    given: dict[str, Given] = {}
    problems = []
    for key, value in read_job_file(path).items():
        name = known_name(key)
        if name is None:
            near = nearest_setting(key)
            advice = f"did you mean {near}?" if near else "`elastic train --help` lists the keys"
            problems.append(f"{path}: unknown key {key}: {advice}")
        elif name in given:
            problems.append(f"{given[name].label} and {key} are the same setting: leave one out")
        else:
            given[name] = Given(value, f"{path}: {key}")
    return given, problems


def from_flags(
    context: click.Context, values: Mapping[str, Any]
) -> tuple[dict[str, Given], list[str]]:
    """The settings that the user gave as flags, and what is wrong with them.

    Args:
        context: The command's context, which knows how flags were typed.
        values: Parsed options by name, None or empty where not given.
    """
    given: dict[str, Given] = {}
    problems = []
    for setting in settings():
        flag = flag_as_typed(context, setting)
        try:
            value = _flag_value(setting, values)
        except ValueError as error:
            problems.append(f"{flag}: {error}")
            continue
        if isinstance(value, str) and value.startswith("--"):
            problems.append(f"{flag} needs a value, but {value} follows: write {flag}=VALUE")
        elif value is not None:
            given[setting.name] = Given(value, flag)
    return given, problems


def _flag_value(setting: Setting, values: Mapping[str, Any]) -> Any:
    """One setting's value, None where no flag gave it; repeated `K=V` flags add up."""
    value = values.get(setting.name)
    if setting.is_mapping:
        return ",".join(value) if value else None
    if setting.is_truth and values.get(f"no_{setting.name}"):
        if value is not None:
            raise ValueError(f"--{setting.name} and --no_{setting.name} exclude each other")
        return False
    return value


def with_name(spec: JobSpec) -> JobSpec:
    """The same job with a name: its own, or one made from its module and four random letters."""
    if spec.job_name:
        return spec
    module = spec.model_def.split(".")[-2].lower()
    base = re.sub(r"[^a-z0-9]+", "-", module).strip("-0123456789") or "job"
    alphabet = string.ascii_lowercase + string.digits
    suffix = "".join(secrets.choice(alphabet) for _ in range(_NAME_SUFFIX_LENGTH))
    room = MAX_JOB_NAME_LENGTH - _NAME_SUFFIX_LENGTH - 1
    return spec.model_copy(update={"job_name": f"{base[:room].rstrip('-')}-{suffix}"})


def with_absolute_paths(spec: JobSpec, folder: Path) -> JobSpec:
    """The same job with its places in the file system written from the root.

    A data source that looks like no path and is none below `folder` is left alone: it is a name
    for the user's own reader.
    """
    update: dict[str, Any] = {}
    for setting in settings():
        text = str(getattr(spec, setting.name))
        if setting.place is Place.SOURCE:
            update[setting.name] = _absolute_origin(text, folder)
            continue
        if setting.place is None or not text or _URL.match(text):
            continue
        path = folder / Path(text).expanduser()
        update[setting.name] = path if setting.name == "model_zoo" else str(path)
    return spec.model_copy(update=update)


def _absolute_origin(origin: str, folder: Path) -> str:
    try:
        return absolute_origin(origin, folder, lambda part: _is_path(part, folder))
    except DataError:
        # To the user's own reader this may mean something; the built-in ones will refuse it.
        return origin


def _is_path(text: str, folder: Path) -> bool:
    return _PATH_SIGN.search(text) is not None or (folder / text).exists()


def notes(spec: JobSpec, given: Mapping[str, Given]) -> list[str]:
    """What the user asked for in vain, one line each."""
    lines = []
    unused = [
        given[setting.name].label
        for setting in settings()
        if setting.name in given and setting.only not in (None, spec.platform)
    ]
    if unused:
        lines.append(f"unused with --platform {spec.platform}: {', '.join(unused)}")
    if not spec.is_async:
        late = [n for n in _ASYNC_ONLY if getattr(spec, n) != JobSpec.model_fields[n].default]
        if late:
            lines.append(f"unused without --use_async: {', '.join(given[n].label for n in late)}")
    if spec.minibatch_size > spec.records_per_task:
        lines.append(
            f"minibatch_size={spec.minibatch_size} is above "
            f"records_per_task={spec.records_per_task}, so that no minibatch holds more than "
            f"{spec.records_per_task} records: raise --records_per_task"
        )
    lost = [given[name].label for name in _goes_with_the_pod(spec) if name in given]
    if lost:
        lines.append(f"below no --volume, so it goes with its pod: {', '.join(lost)}")
    planned = [given[name].label for name in _PLANNED if name in given]
    if planned:
        lines.append(f"accepted, but without effect in this version: {', '.join(planned)}")
    return lines


def _goes_with_the_pod(spec: JobSpec) -> list[str]:
    """Settings whose files nobody can read once the pod that wrote them is gone."""
    # A hook may mount whatever it likes.
    if spec.platform is not PlatformName.KUBERNETES or spec.cluster_spec:
        return []
    texts = {name: str(getattr(spec, name)) for name in _RESULTS}
    lost = [name for name, text in texts.items() if text and not _is_kept(text, spec)]
    # Without a folder the checkpoints are in the job's own, which is in its master's pod.
    is_own = not spec.checkpoint_dir and state_volume(spec.volume) is None
    return [*lost, "checkpoint_steps"] if spec.checkpoint_steps and is_own else lost


def keeps_parameters(spec: JobSpec) -> bool:
    """Whether what was trained can still be read when the master's pod is gone."""
    if spec.platform is not PlatformName.KUBERNETES or state_volume(spec.volume) is not None:
        return True
    named = [text for text in (spec.output, spec.checkpoint_dir) if text]
    # A hook may mount whatever it likes.
    return any(spec.cluster_spec or _is_kept(text, spec) for text in named)


def _is_kept(text: str, spec: JobSpec) -> bool:
    """Whether a path, or an address, lies outside of the pod."""
    path = PurePosixPath(text)
    mounts = [volume.mount_path for volume in parse_volumes(spec.volume) if not volume.is_for_state]
    return _URL.match(text) is not None or any(path.is_relative_to(mount) for mount in mounts)
