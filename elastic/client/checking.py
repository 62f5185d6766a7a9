"""What can be found wrong with a job here and now, instead of in a replica's log."""

from importlib.util import find_spec
from pathlib import Path

from elastic.client.settings import working_folder
from elastic.errors import CheckpointError, JobSpecError
from elastic.platforms.base import Platform
from elastic.spec.job import JobSpec
from elastic.spec.kinds import JobKind
from elastic.spec.packages import pip_install
from elastic.spec.paths import exists


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
    from elastic.spec.export_form import export_target
    from elastic.spec.model_def.check import check_source, is_in_image, written_for

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
        if spec.kind is not JobKind.TRAIN and not exists(text):
            raise CheckpointError(f"there is no {text} to take parameters from: name another path")


def _check_data(spec: JobSpec) -> None:
    """Find data that is not there before the job is, whose name would be taken then.

    Raises:
        DataError: Nothing is there.
    """
    from elastic.data.sources import list_files
    from elastic.spec.model_def.check import may_have
    from elastic.spec.origins import absolute_origin

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
        from elastic.telemetry.event_log import check_installed

        check_installed()


def _check_predictions(spec: JobSpec) -> None:
    """Find what would keep predictions from being written, before anything is computed.

    Raises:
        JobSpecError: They have nowhere to go, or no form.
    """
    from elastic.spec.model_def.check import is_in_image, may_have

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
