"""Settings in words: their names, what each accepts, and what a failed check means to a person."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from elastic.spec.job import JobSpec, WorkerRange
from elastic.spec.kinds import JobKind
from elastic.spec.names import nearest
from elastic.spec.platforms import PlatformName
from elastic.spec.settings import Place

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
