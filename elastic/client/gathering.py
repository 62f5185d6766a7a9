"""All that is said about a job, by its user, a folder, a file and the environment.

A job may be given by a folder alone: by the settings of its `elastic.yaml`, and by what is found
beside them. What can be found wrong with it here and now is found here (`check`), instead of in a
replica's log.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from elastic.client import settings
from elastic.client.platforms import PLATFORM_VARIABLE, ClusterChoice, default_platform
from elastic.client.settings import Given, working_folder
from elastic.errors import CheckpointError, JobSpecError
from elastic.platforms.base import Platform
from elastic.spec import job
from elastic.spec.job import FOLDER_FILE, JobSpec
from elastic.spec.model_check import find_model_def
from elastic.spec.model_def import SymbolNames
from elastic.spec.platforms import HERE, MODEL_ZOO_PATH, JobKind, traits_of
from elastic.spec.values import is_dir, is_file, path_exists, pip_install

MINIBATCH_SIZE: Final = 32
_DATA: Final = "data"
_RECORDS: Final = {
    "training_data_dir": ("training records", ("train",)),
    "evaluation_data_dir": (
        "evaluation records", ("test", "evaluate", "evaluation", "val", "validation"),
    ),
    "prediction_data_dir": ("records to predict", ("predict", "prediction")),
}  # fmt: skip
"""Setting → what such records are called, and how the names of their files begin."""
_PARAMETERS: Final = ("model", "checkpoint_filename_for_init")
_OF_THE_TRAINING: Final = frozenset({"job_name", "overwrite"})
"""By which an evaluation would take the place of the job that has trained its model."""
_OPPOSITES: Final = {"overwrite": "resume", "resume": "overwrite"}
"""Of the two, the one that is typed leaves out the one of a file."""
_READ_WHERE_SUBMITTED: Final = frozenset(
    {"model_zoo", "cluster_spec", "docker_tlscacert", "docker_tlscert", "docker_tlskey"}
)
_SUFFIXES: Final = ("", ".keras", ".safetensors")
"""What an export's file may have beyond the name that was asked for."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """The settings of a job.

    Attributes:
        given: By name; what its user gave wins over a job file, that over a folder.
        problems: What is wrong with the keys of a job file.
        said: What was found and nobody gave, a short line each.
    """

    given: dict[str, Given]
    problems: list[str]
    said: list[str]


def gather(
    kind: JobKind,
    own: Mapping[str, Given],
    choice: ClusterChoice,
    folder: str | Path | None = None,
    config: str | Path | None = None,
) -> Gathered:
    """Bring the settings of a job together.

    Args:
        own: What its user gave, as flags or keywords.
        choice: Which cluster the user has named, if any.
        folder: Holds the model, and may hold settings and records.
        config: A job file.

    Raises:
        JobSpecError: The file cannot be read, or see `Folder.look`.
        ModelDefError: See `Folder.look`.
    """
    given, problems = settings.from_file(Path(config)) if config is not None else ({}, [])
    given = {**_not_opposed(given, own), **own}
    if "namespace" in given:
        choice = replace(choice, namespace=str(given["namespace"].value))
    platform = Given(default_platform(choice), PLATFORM_VARIABLE)
    said: list[str] = []
    if folder is not None:
        found = Folder(kind, Path(folder))
        found.look(given, platform.value)
        given, said = {**_not_opposed(found.given, given), **given}, found.said
    if "platform" not in given:
        given["platform"] = platform
        if platform.value == HERE and not os.environ.get(PLATFORM_VARIABLE):
            said.append("found no kubeconfig: runs on this machine")
    return Gathered(given, problems, said)


class Folder:
    """A folder, and what it says of a job.

    Attributes:
        given: The settings of its file, and those that were found.
        said: What was found, for its user: short lines.
    """

    def __init__(self, kind: JobKind, path: Path) -> None:
        """Keep the values; nothing is looked at before `look`.

        Args:
            kind: What the job does.
        """
        self.given: dict[str, Given] = {}
        self.said: list[str] = []
        self._kind = kind
        self._path = path
        self._is_in_image = False

    def look(self, given: Mapping[str, Given], default: str) -> None:
        """Read the folder's settings, and find what neither they nor its user have given.

        Args:
            given: What the user gave besides, which wins.
            default: The platform where nobody names one.

        Raises:
            JobSpecError: It is no folder, its file cannot be used, or records are ambiguous.
            ModelDefError: It holds no model, or several.
        """
        self._check()
        whole = self._read()
        file = {name: item for name, item in whole.items() if self._has_meaning(name)}
        named = {"platform": Given(default, ""), **file, **given}["platform"].value
        traits = traits_of(named)
        self._is_in_image = traits is not None and traits.has_images
        for name, item in file.items():
            self._take(name, item)
        known = {**self.given, **given}
        known.setdefault("model_zoo", Given(self._path, "--model_zoo"))
        self.given.setdefault("model_zoo", known["model_zoo"])
        if "model_def" not in known:
            self._find_model(known)
        for name in self._records_to_find(known):
            self._find_records(name)
        if "minibatch_size" not in known:
            what = f"no minibatch_size: {MINIBATCH_SIZE} records"
            self._find("minibatch_size", MINIBATCH_SIZE, what)
        if self._kind is not JobKind.TRAIN and not known.keys() & {*_PARAMETERS}:
            self._find_trained(whole.get("output"))

    def _check(self) -> None:
        if is_dir(self._path):
            return
        command = f"elastic {self._kind}"
        if is_file(self._path):
            raise JobSpecError(
                f"{self._path} is a file, and `{command}` takes a folder: a job file is given as "
                f"--config {self._path}"
            )
        raise JobSpecError(
            f"there is no folder {self._path}: name the one of the model, or begin one with "
            f"`elastic zoo new {self._path}`"
        )

    def _read(self) -> dict[str, Given]:
        """The settings of the folder's file."""
        path = self._path / FOLDER_FILE
        if not path_exists(path):
            return {}
        file, problems = settings.from_file(path)
        if problems:
            raise settings.refusal(problems)
        self.said.append(f"found settings in {path}")
        return file

    def _has_meaning(self, name: str) -> bool:
        """Whether a setting is for this kind of job: one file serves the three commands."""
        if self._kind is not JobKind.TRAIN and name in _OF_THE_TRAINING:
            return False
        return self._kind in _setting(name).kinds

    def _take(self, name: str, item: Given) -> None:
        """Take a setting of the folder's file, whose paths are meant from the folder."""
        setting = _setting(name)
        is_path = setting.place is not None or name in _READ_WHERE_SUBMITTED
        if not (is_path and isinstance(item.value, str) and item.value):
            self.given[name] = item
            return
        is_here = not self._is_in_image or name in _READ_WHERE_SUBMITTED
        if not is_here and name not in (*_RECORDS, *_PARAMETERS) and _is_relative(item.value):
            self.said.append(f"left out, as it would go with its pod: {item.label}")
            return
        seen_as = self._path if is_here else MODEL_ZOO_PATH
        value = settings.placed(setting, item.value, self._path, seen_as)
        self.given[name] = Given(value, item.label)

    def _find(self, name: str, value: object, what: str) -> None:
        self.given[name] = Given(value, f"--{name}")
        self.said.append(f"found {what}")

    def _find_model(self, known: Mapping[str, Given]) -> None:
        names = {each.name: str(known[each.name].value) for each in fields(SymbolNames)
                 if each.name in known}  # fmt: skip
        zoo = Path(str(known["model_zoo"].value))
        model_def = find_model_def(zoo, SymbolNames(**names))
        self._find("model_def", model_def, f"model {model_def}")

    def _records_to_find(self, known: Mapping[str, Given]) -> list[str]:
        return [n for n in _RECORDS if self._kind in _setting(n).kinds and n not in known]

    def _find_records(self, name: str) -> None:
        """Find the files of one kind of records in the folder's data.

        Raises:
            JobSpecError: Several may be meant, or there are none and the job cannot do without.
        """
        what, stems = _RECORDS[name]
        folder = self._path / _DATA
        found = [path for path in _entries(folder) if path.name.partition(".")[0] in stems]
        if len(found) > 1:
            names = " and ".join(path.name for path in found)
            raise JobSpecError(f"{folder} holds {names}: choose the {what} with --{name}")
        if found:
            seen_as = MODEL_ZOO_PATH / _DATA / found[0].name if self._is_in_image else found[0]
            self._find(name, str(seen_as), f"{what} {seen_as}")
        elif name == self._kind.data_setting:
            missing = f"there is no {folder / stems[0]}.*"
            raise JobSpecError(f"{missing}: put the {what} there, or name them with --{name}")

    def _find_trained(self, output: Given | None) -> None:
        """Find the model that the training of this folder has exported.

        Raises:
            JobSpecError: It has not yet.
        """
        if output is None or not isinstance(output.value, str) or self._is_in_image:
            return
        path = settings.placed(_setting("output"), output.value, self._path).rstrip("/")
        trained = next((path + each for each in _SUFFIXES if path_exists(path + each)), None)
        if trained is None:
            raise JobSpecError(
                f"{path} is not there yet: `elastic train {self._path}` exports it; or name a "
                "checkpoint with --init_from, or an exported model with --model"
            )
        self._find("model", trained, f"parameters {trained}")


def _not_opposed(file: Mapping[str, Given], own: Mapping[str, Given]) -> dict[str, Given]:
    """The settings of a file but those of which `own` says the opposite."""
    return {
        name: item for name, item in file.items() if not _is_true(own.get(_OPPOSITES.get(name, "")))
    }


def _is_true(item: Given | None) -> bool:
    # What is no truth value is refused where the job is made.
    return item is not None and str(item.value).lower() in ("true", "yes", "1")


def _setting(name: str) -> job.Setting:
    return next(each for each in job.settings() if each.name == name)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir()) if is_dir(folder) else []
    except OSError as error:
        raise JobSpecError(
            f"{folder} cannot be looked into ({error.strerror}): mend its permissions, or name the "
            "records by flags"
        ) from error


def _is_relative(text: str) -> bool:
    return "://" not in text and not text.startswith(("/", "~"))


def check(spec: JobSpec) -> None:
    """Look at the user's module and, where they are of this machine, at the records.

    Raises:
        ModelDefError: The module does not keep the contract.
        DataError: There are no records.
        CheckpointError: There is no model to take parameters from.
        JobSpecError: Something else that the job needs is missing.
    """
    _check_model(spec)
    if spec.platform.traits.shares_files:
        _check_results(spec)
        _check_parameters(spec)
        _check_data(spec)
        _check_telemetry(spec)
    if spec.kind is JobKind.PREDICT:
        _check_predictions(spec)


def nothing_to_resume(platform: Platform, spec: JobSpec) -> str:
    """What --resume cannot do, or nothing: a name or a folder may have been mistyped."""
    if spec.kind is not JobKind.TRAIN or not spec.resume or spec.job_name in platform.jobs():
        return ""
    folder = spec.checkpoint_dir
    if folder and not spec.platform.traits.shares_files:
        # What lies on a cluster's volume is its master's to see.
        return ""
    if folder:
        from elastic.checkpoints.cuts import list_cuts

        if list_cuts(Path(folder)):
            return ""
    empty = f", and --checkpoint_dir={folder} holds no checkpoint" if folder else ""
    return (
        f"nothing to resume: there is no job {spec.job_name!r}{empty}: "
        "it starts from the first record"
    )


def _check_model(spec: JobSpec) -> None:
    """Find what is wrong with the user's module."""
    # Not needed for --help and --dry_run.
    from elastic.spec.model_check import check_source, is_in_image, written_for
    from elastic.spec.values import export_target

    if is_in_image(spec.image, spec.model_zoo):
        return
    check_source(spec.model_zoo, spec.model_def, spec.symbol_names())
    framework = written_for(spec.model_zoo, spec.model_def)
    if spec.output and framework is not None:
        export_target(spec.output, framework)


def _check_results(spec: JobSpec) -> None:
    """Find what would keep the trained model from being written, before its job's name is taken.

    Raises:
        JobSpecError: Something else stands there.
    """
    from elastic.checkpoints.destinations import check_results_free

    check_results_free(spec)


def _check_parameters(spec: JobSpec) -> None:
    """Find out whether there is a model to evaluate or to predict with.

    Raises:
        CheckpointError: There is none.
    """
    for text in filter(None, (spec.model, spec.checkpoint_filename_for_init)):
        if spec.kind is not JobKind.TRAIN and not path_exists(text):
            raise CheckpointError(f"there is no {text} to take parameters from: name another path")


def _check_data(spec: JobSpec) -> None:
    """Find data that is not there before the job is, whose name would be taken then.

    Raises:
        DataError: Nothing is there.
    """
    from elastic.data.sources import list_files
    from elastic.spec.model_check import may_have
    from elastic.spec.values import absolute_origin

    if may_have(spec.model_zoo, spec.model_def, spec.custom_data_reader):
        # Only the user's reader knows what its origin means.
        return
    origins = {spec.data_origin, spec.evaluation_data_dir}
    for origin in filter(None, sorted(origins)):
        list_files(absolute_origin(origin, working_folder()))


def _check_telemetry(spec: JobSpec) -> None:
    """Find what the master would write its curves with; a cluster has it in the job's image.

    Raises:
        JobSpecError: It is not installed.
    """
    if spec.tensorboard_log_dir:
        from elastic.telemetry.board import check_installed

        check_installed()


def _check_predictions(spec: JobSpec) -> None:
    """Find what would keep predictions from being written, before anything is computed.

    Raises:
        JobSpecError: They have nowhere to go, or no form.
    """
    from elastic.spec.model_check import is_in_image, may_have

    if spec.prediction_format == "parquet" and find_spec("pyarrow") is None:
        raise JobSpecError(
            "--prediction_format=parquet needs pyarrow, which is not installed here: install it "
            f"with {pip_install('parquet')}, or write csv"
        )
    if spec.platform.traits.shares_files or spec.prediction_outputs:
        return
    if is_in_image(spec.image, spec.model_zoo) or may_have(
        spec.model_zoo, spec.model_def, spec.prediction_outputs_processor
    ):
        # The master knows whether there is a processor.
        return
    raise JobSpecError(
        "--prediction_outputs is missing: name a folder below the mount_path of a --volume that "
        f"all pods share, or define {spec.prediction_outputs_processor} in the model_def"
    )
