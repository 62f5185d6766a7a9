"""From what users give and the environment to one `JobSpec`, or to all that is wrong with it."""

import re
import secrets
import string
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from pydantic import ValidationError

from elastic.errors import DataError, JobSpecError
from elastic.spec import values as paths
from elastic.spec.job import (
    INSTEAD,
    JobSpec,
    Setting,
    known_name,
    nearest_setting,
    problem_text,
    read_job_file,
    settings,
)
from elastic.spec.platforms import JobKind
from elastic.spec.settings import Place
from elastic.spec.settings.cluster import parse_volumes, state_volume
from elastic.spec.settings.work import MAX_JOB_NAME_LENGTH
from elastic.spec.values import absolute_origin

_NAME_SUFFIX_LENGTH: Final = 4
_ASYNC_ONLY: Final = ("lr_staleness_modulation", "max_staleness")
_BETWEEN_EVALUATIONS: Final = ("evaluation_throttle_secs", "evaluation_start_delay_secs")
_WHEN_TO_EVALUATE: Final = (
    "evaluation_steps", "evaluation_at_epoch_end", *_BETWEEN_EVALUATIONS,
)  # fmt: skip
_OF_BUILDING: Final = (
    "docker_image_repository", "image_base", "extra_pypi_index", "docker_base_url",
    "docker_tlscacert", "docker_tlscert", "docker_tlskey",
)  # fmt: skip
_RESULTS: Final = (
    "checkpoint_dir",
    "output",
    "commit_log",
    "tensorboard_log_dir",
    "prediction_outputs",
)
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_PATH_SIGN: Final = re.compile(r"[/*?~\[]")


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's value as somebody gave it; `label` says where: a flag, or a key of a file."""

    value: Any
    label: str


def complete(
    kind: JobKind,
    given: Mapping[str, Given],
    problems: Iterable[str] = (),
    prefix: str = "--",
) -> tuple[JobSpec, list[str]]:
    """The whole job, with a name and with paths that mean the same anywhere on this machine.

    Returns:
        It, and what its user asked for in vain.

    Raises:
        JobSpecError: See `resolve`.
    """
    spec = with_name(resolve(kind, given, problems, prefix))
    in_vain = notes(spec, given)
    if spec.platform.traits.shares_files:
        spec = with_absolute_paths(spec, working_folder())
    return spec, in_vain


def resolve(
    kind: JobKind,
    given: Mapping[str, Given],
    problems: Iterable[str] = (),
    prefix: str = "--",
) -> JobSpec:
    """Validate what was given, with the defaults for the rest.

    Args:
        kind: What the command does.
        given: Setting name → value.
        problems: What is known to be wrong already; told together with what is found here.
        prefix: Stands before the name of a setting that is missing.

    Raises:
        JobSpecError: With one line per problem.
    """
    found = [*problems, *_misplaced(kind, given)]
    values = {name: item.value for name, item in given.items()}
    try:
        spec = JobSpec(**values | {"kind": kind})
    except ValidationError as error:
        found += [
            problem_text(item, lambda name: given[name].label if name in given else prefix + name)
            for item in error.errors()
        ]
    if not found:
        return spec
    raise refusal(found)


def refusal(problems: Iterable[str]) -> JobSpecError:
    """All that is wrong with the settings of a job, one line per problem."""
    lines = [line for problem in problems for line in problem.splitlines()]
    if len(lines) == 1:
        return JobSpecError(lines[0])
    return JobSpecError("\n  ".join([f"{len(lines)} settings cannot be used:", *lines]))


def _misplaced(kind: JobKind, given: Mapping[str, Given]) -> list[str]:
    """What was given to the command of one kind, and belongs to another."""
    told = given.get("kind")
    if told is not None and told.value != kind:
        return [f"{told.label} is {told.value}, and the command is elastic {kind}: use one of them"]
    found = []
    for setting in settings():
        if setting.name in given and kind not in setting.kinds:
            others = " and ".join(f"elastic {other}" for other in JobKind if other in setting.kinds)
            counterpart = _COUNTERPARTS.get((kind, setting.name))
            is_meant = counterpart is not None and counterpart not in given
            found.append(
                f"{given[setting.name].label} has no meaning for elastic {kind}, only for "
                f"{others}: {f'--{counterpart} is what it takes' if is_meant else 'leave it out'}"
            )
    return found


_COUNTERPARTS: Final = {
    (JobKind.PREDICT, "output"): "prediction_outputs",
    (JobKind.PREDICT, "training_data_dir"): "prediction_data_dir",
    (JobKind.PREDICT, "evaluation_data_dir"): "prediction_data_dir",
    (JobKind.EVALUATE, "training_data_dir"): "evaluation_data_dir",
    (JobKind.EVALUATE, "prediction_data_dir"): "evaluation_data_dir",
}
"""What does in a kind of job what the other setting does in others."""


def from_file(path: Path) -> tuple[dict[str, Given], list[str]]:
    """The settings of a job file, and what is wrong with its keys.

    Raises:
        JobSpecError: The file cannot be read as a mapping.
    """
    return _from_keys(read_job_file(path), f"{path}: ", "unknown key")


def from_keywords(values: Mapping[str, Any]) -> tuple[dict[str, Given], list[str]]:
    """The settings given as keyword arguments, and what is wrong with their names."""
    return _from_keys(values, "", "unknown setting")


def _from_keys(
    values: Mapping[str, Any], place: str, unknown: str
) -> tuple[dict[str, Given], list[str]]:
    given: dict[str, Given] = {}
    problems = []
    for key, value in values.items():
        name = known_name(key)
        if name is None:
            near = nearest_setting(key)
            nearest = f"did you mean {near}?" if near else "`elastic train --help` lists the keys"
            advice = INSTEAD.get(key.replace("-", "_"), nearest)
            problems.append(f"{place}{unknown} {key}: {advice}")
        elif name in given:
            problems.append(f"{given[name].label} and {key} are the same setting: leave one out")
        else:
            given[name] = Given(value, place + key)
    return given, problems


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


def working_folder() -> Path:
    """The folder that paths are meant from.

    Raises:
        JobSpecError: It is not there any more.
    """
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise JobSpecError(
            "the working folder has been removed: cd to one that is there"
        ) from error


def with_absolute_paths(spec: JobSpec, folder: Path) -> JobSpec:
    """The same job with its places in the file system written from the root.

    A data source that looks like no path and is none below `folder` is left alone: it is a name
    for the user's own reader.
    """
    update: dict[str, Any] = {}
    for setting in settings():
        text = str(getattr(spec, setting.name))
        if setting.place is not None and text:
            path = placed(setting, text, folder)
            update[setting.name] = Path(path) if setting.name == "model_zoo" else path
    return spec.model_copy(update=update)


def placed(setting: Setting, text: str, folder: Path, seen_as: Path | None = None) -> str:
    """A place in the file system that is meant from a folder.

    Args:
        setting: One whose value is a path or a source.
        text: That value, not empty.
        seen_as: The folder as the replicas of the job see it, where that is another.
    """
    if setting.place is Place.SOURCE:
        return _absolute_origin(text, folder, seen_as or folder)
    if _URL.match(text):
        return text
    # A slash at the end says that a folder is to be written.
    slash = "/" if setting.name == "output" and text.endswith("/") else ""
    return f"{(seen_as or folder) / paths.expand_user(text)}{slash}"


def _absolute_origin(origin: str, folder: Path, seen_as: Path) -> str:
    try:
        return absolute_origin(origin, seen_as, lambda part: _is_path(part, folder))
    except DataError:
        # To the user's own reader this may mean something; the built-in ones will refuse it.
        return origin


def _is_path(text: str, folder: Path) -> bool:
    return _PATH_SIGN.search(text) is not None or paths.path_exists(folder / text)


def notes(spec: JobSpec, given: Mapping[str, Given]) -> list[str]:
    """What the user asked for in vain, one line each."""
    lines = []
    for circumstance, names in _without_effect(spec):
        labels = [given[name].label for name in names if _is_chosen(name, spec, given)]
        if labels:
            lines.append(f"unused {circumstance}: {', '.join(labels)}")
    lines += _too_small_tasks(spec)
    processor = "prediction_outputs_processor"
    if spec.kind is not JobKind.PREDICT and _is_chosen(processor, spec, given):
        label = given[processor].label
        lines.append(f"used by elastic predict alone: {label}")
    lost = [given[name].label for name in _goes_with_the_pod(spec) if name in given]
    if lost:
        lines.append(f"below no --volume, so it goes with its pod: {', '.join(lost)}")
    return lines


def _too_small_tasks(spec: JobSpec) -> Iterator[str]:
    each, size = spec.records_per_task, spec.minibatch_size
    if each is None or size <= each:
        return
    what = f"minibatch_size={size} is above records_per_task={each}"
    if spec.kind is JobKind.TRAIN:
        yield f"{what}, and tasks hold whole minibatches: each has {size} records"
    else:
        yield (
            f"{what}, so that no minibatch holds more than {each} records: raise --records_per_task"
        )


def _without_effect(spec: JobSpec) -> Iterator[tuple[str, Iterable[str]]]:
    """Circumstances of this job, and the settings that do nothing in them."""
    others = [each.name for each in settings() if each.only not in (None, spec.platform)]
    yield f"with --platform {spec.platform}", others
    if spec.image and spec.platform.traits.has_images:
        yield "with --image", _OF_BUILDING
    if spec.kind is not JobKind.TRAIN:
        return
    if not spec.is_async:
        yield "without --use_async", _ASYNC_ONLY
    if not spec.evaluation_data_dir:
        yield "without --evaluation_data_dir", _WHEN_TO_EVALUATE
    elif not spec.evaluation_steps:
        yield "without --evaluation_steps", _BETWEEN_EVALUATIONS
    if not (spec.checkpoint_dir or spec.checkpoint_steps):
        yield "without --checkpoint_dir or --checkpoint_steps", ["keep_checkpoint_max"]


def _is_chosen(name: str, spec: JobSpec, given: Mapping[str, Given]) -> bool:
    """Whether the user wants something else than the default, which job files may repeat."""
    return name in given and getattr(spec, name) != JobSpec.model_fields[name].default


def _goes_with_the_pod(spec: JobSpec) -> list[str]:
    """Settings whose files nobody can read once the pod that wrote them is gone."""
    # A hook may mount whatever it likes.
    if spec.platform.traits.shares_files or spec.cluster_spec:
        return []
    texts = {name: str(getattr(spec, name)) for name in _RESULTS}
    lost = [name for name, text in texts.items() if text and not _is_kept(text, spec)]
    # Without a folder the checkpoints are in the job's own, which is in its master's pod.
    is_own = not spec.checkpoint_dir and state_volume(spec.volume) is None
    return [*lost, "checkpoint_steps"] if spec.checkpoint_steps and is_own else lost


def keeps_parameters(spec: JobSpec) -> bool:
    """Whether what was trained, if anything, can be read when the master's pod is gone."""
    if spec.kind is not JobKind.TRAIN:
        return True
    if spec.platform.traits.shares_files or state_volume(spec.volume) is not None:
        return True
    named = [text for text in (spec.output, spec.checkpoint_dir) if text]
    # A hook may mount whatever it likes.
    return any(spec.cluster_spec or _is_kept(text, spec) for text in named)


def lost_parameters(spec: JobSpec) -> str:
    """That nobody will have the trained model, and how somebody will; or nothing."""
    if keeps_parameters(spec):
        return ""
    return (
        "the trained parameters stay in the master's pod and go with it: keep them with "
        "--volume claim_name=CLAIM,mount_path=/results --output /results/model"
    )


def _is_kept(text: str, spec: JobSpec) -> bool:
    """Whether a path, or an address, lies outside of the pod."""
    path = PurePosixPath(text)
    mounts = [volume.mount_path for volume in parse_volumes(spec.volume) if not volume.is_for_state]
    return _URL.match(text) is not None or any(path.is_relative_to(mount) for mount in mounts)
