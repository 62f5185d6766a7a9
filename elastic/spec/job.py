"""`JobSpec`: every setting of a job, what they mean together, the words for them, and its file.

The command line makes its flags from these fields, the job file has them as keys, and every
process of a job receives the whole document serialized, never flag by flag.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import yaml
from pydantic import ConfigDict, model_validator
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from elastic.errors import JobSpecError
from elastic.spec.model_def import SymbolNames
from elastic.spec.platforms import JobKind, PlatformName
from elastic.spec.settings import Place, WorkerRange
from elastic.spec.settings.cluster import ClusterSettings
from elastic.spec.settings.work import WorkSettings
from elastic.spec.values import BatchRange, nearest, parse_batch_range
from elastic.spec.yaml_text import dump_value, load_value

__all__ = ["JobSpec", "WorkerRange"]

RECORDS_PER_RANGE: Final = 1000
"""Of a prediction's files, where the user names no number of records."""


# The fields of the last base come first, in flags, job files and documents.
class JobSpec(ClusterSettings, WorkSettings):
    """One job, validated. Frozen: what a process got is what it works by."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, ser_json_inf_nan="constants"
    )

    @model_validator(mode="after")
    def _check_together(self) -> "JobSpec":
        problems = [] if self.kind is JobKind.TRAIN else self._source_problems()
        if self.num_workers.maximum < 1:
            problems.append(f"--num_workers is {self.num_workers}: allow at least one worker")
        if self.autoscale and self.num_workers.minimum == self.num_workers.maximum:
            problems.append(
                f"--autoscale has nothing to choose from with --num_workers={self.num_workers}: "
                "give a range such as 2:8, or leave it out"
            )
        if self.autoscale and self.queue:
            problems.append(
                f"--autoscale and --queue={self.queue} would both decide when there are more "
                "workers: leave one of them out"
            )
        if self.master_port and self.master_port == self.served_metrics_port:
            problems.append(
                f"--master_port={self.master_port} is the port of the metrics too: choose another, "
                "or another --metrics_port"
            )
        if self.resume and self.overwrite:
            problems.append(
                "--resume goes on from the job of that name, --overwrite removes it: "
                "leave one of them out"
            )
        if self.env_secret and not self.platform.traits.has_secrets:
            problems.append(
                f"--env_secret={','.join(self.env_secret)} names Secrets of a cluster, and on this "
                "machine a job has the environment of the command that starts it: leave it out, "
                "and export the variables"
            )
        suffix = Path(self.prediction_outputs).suffix.lower()
        if suffix in {".csv", ".parquet"} - {f".{self.prediction_format}"}:
            problems.append(
                f"--prediction_outputs={self.prediction_outputs} is a folder, for files of "
                f"--prediction_format={self.prediction_format}: choose "
                f"--prediction_format={suffix[1:]}, or another name"
            )
        if self.is_async and (self.grads_to_wait or 1) > 1:
            cause = "use_async" if self.use_async else f"get_model_steps={self.get_model_steps}"
            problems.append(
                f"grads_to_wait={self.grads_to_wait} has no meaning with {cause}: leave one of "
                "them out"
            )
        problems.extend(self._batch_problems())
        problems.extend(self._place_problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _place_problems(self) -> Iterator[str]:
        """What is said of servers and stores, and has no meaning with where parameters are kept."""
        if self.strategy == "ps" and not self.num_ps:
            yield "--strategy ps needs servers: give --num_ps 1 or more"
        if self.strategy == "master" and self.num_ps:
            yield (
                f"--strategy master has no parameter servers, and --num_ps={self.num_ps} asks for "
                "some: leave one of them out"
            )
        if self.embedding_store == "ps" and not self.num_ps:
            yield (
                "--embedding_store ps has the rows of embeddings on parameter servers, and there "
                "are none: give --num_ps 1 or more"
            )
        if self.embedding_redis_url and self.embedding_store != "redis":
            yield (
                f"--embedding_redis_url={self.embedding_redis_url} has no meaning with "
                f"--embedding_store={self.embedding_store}: give --embedding_store redis, or leave "
                "it out"
            )
        if self.embedding_redis_ca and not self.embedding_redis_url.startswith("rediss:"):
            yield (
                f"--embedding_redis_ca={self.embedding_redis_ca} has no meaning without TLS: begin "
                "--embedding_redis_url with rediss://, or leave it out"
            )

    def _batch_problems(self) -> Iterator[str]:
        """What keeps the master from choosing the batch: what it goes with, else its size."""
        batch = self.batch_range
        if batch is None:
            return
        conflicts = list(self._batch_conflicts(f"--elastic_batch={batch}"))
        yield from conflicts or self._batch_size_problems(batch)

    def _batch_conflicts(self, flag: str) -> Iterator[str]:
        if self.is_async:
            cause = "use_async" if self.use_async else f"get_model_steps={self.get_model_steps}"
            yield f"{flag} has no meaning with {cause}: leave one of them out"
        if self.grads_to_wait is not None:
            yield (
                f"{flag} and grads_to_wait={self.grads_to_wait} both say how many gradients make "
                "an update: leave one of them out"
            )
        if self.num_ps:
            yield (
                f"{flag} needs the parameters in the master, which measures the noise of the "
                f"gradients there, and num_ps={self.num_ps} asks for servers: leave one of them out"
            )
        if self.shrink_minibatches:
            yield (
                f"{flag} is made of minibatches of one size, and shrink_minibatches may change it: "
                "leave one of them out"
            )

    def _batch_size_problems(self, batch: BatchRange) -> Iterator[str]:
        """At most one: what mends it mends all."""
        flag, size = f"--elastic_batch={batch}", self.minibatch_size
        if batch.minimum % size or batch.maximum % size or batch.minimum < 2 * size:
            yield (
                f"{flag} has to be in whole minibatches, and in two or more, since the noise of "
                f"gradients shows between those of one update: give multiples of "
                f"minibatch_size={size} from {2 * size} on, or a smaller minibatch_size"
            )
        elif (used := batch.maximum // size) < (workers := self.num_workers.minimum):
            yield (
                f"{flag} has at most {used} minibatches in an update, and num_workers={workers} "
                f"compute one each, so that some would always come too late: give a maximum of "
                f"{workers * size} or more, a smaller minibatch_size, or fewer workers"
            )

    def _source_problems(self) -> list[str]:
        """What is wrong with where a job that does not train takes its parameters from."""
        sources = (self.model, self.checkpoint_filename_for_init)
        if all(sources):
            return ["--model and --init_from both name parameters: leave one out"]
        if any(sources):
            return []
        return [
            f"nothing says which parameters to {self.kind} with: name a checkpoint with "
            "--init_from, or an exported model with --model"
        ]

    @property
    def data_origin(self) -> str:
        """The records that the job goes through."""
        return str(getattr(self, self.kind.data_setting))

    @property
    def records_per_range(self) -> int:
        """Records of a task of a prediction, and what readers are told."""
        return self.records_per_task or RECORDS_PER_RANGE

    @property
    def num_redis(self) -> int:
        """How many Redis servers the job brings along: one where its rows are to be in one."""
        return int(self.embedding_store == "redis" and not self.embedding_redis_url)

    @property
    def is_async(self) -> bool:
        """Whether gradients are applied as they come: asked for, or local updates do it."""
        return self.use_async or self.get_model_steps > 1

    @property
    def gradients_per_update(self) -> int:
        """Gradients averaged into one update; by default of as many as there can be workers.

        Where the master chooses, those that it begins with.

        So the records behind an update stay the same however many of them there are just now, and
        no gradient comes too late.
        """
        if self.is_async:
            return 1
        if self.batch_range is not None:
            return self.batch_range.minimum // self.minibatch_size
        return self.grads_to_wait or self.num_workers.maximum

    @property
    def workers_beside_update(self) -> int:
        """Workers that may compute while an update is applied: those it is made of wait for it."""
        return max(self.num_workers.maximum - self.gradients_per_update, 0)

    @property
    def batch_range(self) -> BatchRange | None:
        """Between which batches the master chooses; None where it does not."""
        return parse_batch_range(self.elastic_batch) if self.elastic_batch else None

    @property
    def workers_at_first(self) -> int | None:
        """With how many workers it begins; None where that is a matter of the room there is."""
        if self.autoscale and self.platform.traits.has_controllers:
            return max(1, self.num_workers.minimum)
        return None

    @property
    def served_metrics_port(self) -> int:
        """Where `/metrics` is served; 0 for nowhere."""
        if self.metrics_port is not None:
            return self.metrics_port
        return self.platform.traits.metrics_port

    @property
    def is_encrypted(self) -> bool:
        """Whether its processes encrypt their calls: as it says, or as its platform does."""
        return self.platform.traits.is_encrypted if self.tls is None else self.tls

    def symbol_names(self) -> SymbolNames:
        """What the contract's symbols are called in this job's module."""
        return SymbolNames(**{name: getattr(self, name) for name in SymbolNames.__slots__})


# Settings in words: their names, what each accepts, and what a failed check means to a person.


_KINDS: Final = {
    int: ("N", "a whole number"),
    float: ("NUMBER", "a number"),
    bool: ("BOOL", "one of true, false"),
    str: ("TEXT", "text"),
    dict: ("K=V,...", "names with values"),
    tuple: ("NAME,...", "names"),
    WorkerRange: ("N|MIN:MAX", "a number like 2 or a range like 2:8"),
    PlatformName: ("|".join(PlatformName), f"one of {', '.join(PlatformName)}"),
    JobKind: ("|".join(JobKind), f"one of {', '.join(JobKind)}"),
}

INSTEAD: Final = {
    "feed": "name the function with --dataset_fn; it gets no third argument",
    "num_minibatches_per_task": (
        "give --records_per_task instead: as many minibatches times --minibatch_size"
    ),
    "sync_version_tolerance": (
        "give --max_staleness with --use_async; without it a gradient of an older version is "
        "always refused"
    ),
    "relaunch_on_worker_failure": (
        "give --max_worker_failures instead, which counts crashes of your code in the whole job"
    ),
    "log_loss_steps": "leave it out: `elastic status` and `elastic train` show the loss",
    "populate_env_names": "give the variables with --envs instead",
    "cluster_spec_json": "give a file with --cluster_spec instead",
    "yaml": "--dry_run prints the whole job, and --config runs what was printed",
}
"""Settings of ElasticDL with another name here, or none: what its users are told of each."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One field of `JobSpec`, as flags, job files and documents see it.

    Attributes:
        metavar: Stands for the value in help texts.
        expected: What a usable value is, bounds included; ends a sentence "expected …".
        has_choices: `metavar` lists all values there are.
        adds_up: Given several times, its values count together.
        default: The default as a person would type it; empty where it is to leave the setting out.
        only: The one platform that uses it, or None for all.
        kinds: The jobs that it has a meaning for.
        required_by: Those of them that cannot do without.
    """

    name: str
    aliases: tuple[str, ...]
    group: str
    help: str
    metavar: str
    expected: str
    default: str
    is_truth: bool
    adds_up: bool
    has_choices: bool
    place: Place | None
    only: PlatformName | None
    kinds: frozenset[JobKind]
    required_by: frozenset[JobKind]

    @property
    def is_flag(self) -> bool:
        """Whether it can be given on a command line, where the command says the kind."""
        return self.name != "kind"


@cache
def settings() -> tuple[Setting, ...]:
    """Every setting, in the order of declaration."""
    return tuple(_setting(name, field) for name, field in JobSpec.model_fields.items())


@cache
def flag_settings(kind: JobKind) -> tuple[Setting, ...]:
    """Those that the command of a kind takes as flags."""
    return tuple(setting for setting in settings() if setting.is_flag and kind in setting.kinds)


def _setting(name: str, field: FieldInfo) -> Setting:
    extra: Any = field.json_schema_extra
    kind, choices = _kind(field.annotation)
    metavar, expected = _KINDS.get(kind, ("PATH", "a path"))
    if choices:
        metavar, expected = "|".join(choices), f"one of {', '.join(choices)}"
    elif kind is str and "place" in extra:
        metavar = "PATH"
    return Setting(
        name=name,
        aliases=tuple(extra["aliases"]),
        group=extra["group"],
        help=field.description or "",
        metavar=metavar,
        expected=expected + _bounds(field),
        default="" if field.is_required() else _default_text(field.default),
        is_truth=kind is bool,
        adds_up=kind in (dict, tuple),
        has_choices=bool(choices) or kind is PlatformName,
        place=Place(extra["place"]) if "place" in extra else None,
        only=PlatformName(extra["only"]) if "only" in extra else None,
        kinds=frozenset(extra["kinds"]),
        required_by=frozenset(
            kind
            for kind in extra["kinds"]
            if field.is_required() or name == JobKind(kind).data_setting
        ),
    )


def _kind(annotation: Any) -> tuple[Any, tuple[str, ...]]:
    """The plain type below an annotation, and its choices where it is a Literal."""
    if get_origin(annotation) is Literal:
        return str, get_args(annotation)
    if get_origin(annotation) is Annotated:
        return _kind(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not type(None)))
    return get_origin(annotation) or annotation, ()


def _bounds(field: FieldInfo) -> str:
    bounds = {
        name: getattr(rule, name)
        for rule in field.metadata
        for name in ("ge", "gt", "le")
        if getattr(rule, name, None) is not None
    }
    match bounds:
        case {"ge": low, "le": high}:
            return f" from {low} to {high}"
        case {"ge": low}:
            return f" of at least {low}"
        case {"gt": low}:
            return f" above {low}"
    return ""


def _default_text(default: Any) -> str:
    if default is None or default in ({}, (), ""):
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    return f"{default:g}" if isinstance(default, float) else str(default)


def problem_text(error: ErrorDetails, label: Callable[[str], str]) -> str:
    """Say one failed check in the user's terms.

    Args:
        error: One item of `ValidationError.errors()`.
        label: Setting name → what the user called it: a flag, or a key of a file.
    """
    cause = error.get("ctx", {}).get("error", error["msg"])
    if not error["loc"]:
        return str(cause)
    name = str(error["loc"][0])
    setting = next(setting for setting in settings() if setting.name == name)
    if error["type"] == "missing":
        return f"{label(name)} is missing: {setting.help}"
    if error["type"] == "value_error":
        return f"{label(name)}: {cause}"
    value = error["input"]
    if value is None:
        return f"{label(name)} is empty: leave it out, or give it {setting.expected}"
    advice = ", so put it in quotes" if error["type"] == "string_type" else ""
    return f"{label(name)} is {value!r}: expected {setting.expected}{advice}"


def known_name(name: str) -> str | None:
    """The setting that a key or flag means: `-` and `_` are alike, aliases are known."""
    plain = name.replace("-", "_")
    for setting in settings():
        if plain == setting.name or plain in setting.aliases:
            return setting.name
    return None


def nearest_setting(name: str) -> str | None:
    """`names.nearest` among the settings and their aliases."""
    known = [n for setting in settings() for n in (setting.name, *setting.aliases)]
    return nearest(name.replace("-", "_"), known)


# Job files: a JobSpec as YAML, read by `--config` and written by `--dry_run`.


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
