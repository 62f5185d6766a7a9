"""What can be found wrong with a job here and now, instead of in a replica's log."""

from pathlib import Path

from elastic.platforms.base import Platform
from elastic.spec.job import JobSpec, PlatformName


def check(spec: JobSpec) -> None:
    """Look at the user's module and, where they are of this machine, at the records.

    Raises:
        ModelDefError: The module does not keep the contract.
        DataError: There are no records.
    """
    _check_model(spec)
    if spec.platform is PlatformName.LOCAL:
        _check_data(spec)


def nothing_to_resume(platform: Platform, spec: JobSpec) -> str:
    """What --resume cannot do, or nothing: a name or a folder may have been mistyped."""
    if not spec.resume or spec.job_name in platform.jobs():
        return ""
    folder = spec.checkpoint_dir
    if folder and spec.platform is not PlatformName.LOCAL:
        # What lies on a cluster's volume is its master's to see.
        return ""
    if folder:
        from elastic.master.cuts import list_cuts

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
    from elastic.spec.model_check import check_source, is_in_image

    if is_in_image(spec.image, spec.model_zoo):
        return
    check_source(spec.model_zoo, spec.model_def, spec.symbol_names())


def _check_data(spec: JobSpec) -> None:
    """Find data that is not there before the job is, whose name would be taken then.

    Raises:
        DataError: Nothing is there.
    """
    from elastic.data.sources import list_files
    from elastic.spec.model_check import may_have

    if may_have(spec.model_zoo, spec.model_def, spec.custom_data_reader):
        # Only the user's reader knows what its origin means.
        return
    for origin in filter(None, (spec.training_data_dir, spec.evaluation_data_dir)):
        is_address = "://" in origin
        list_files(origin if is_address else str(Path.cwd() / Path(origin).expanduser()))
