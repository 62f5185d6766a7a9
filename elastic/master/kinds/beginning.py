"""What a job begins with: the cut that it goes on from, and the tables of its embeddings.

Which cut that is, whether it fits this job, and what follows if there is none; and tables checked,
opened, and begun.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from elastic.checkpoints.contents import CutRows, read_manifest, read_rows, refuse_rows
from elastic.checkpoints.cuts import (
    Cut,
    clean_up,
    list_cuts,
    newest_cut,
    newest_first,
    remove,
    remove_all,
)
from elastic.checkpoints.table_files import exported_tables
from elastic.errors import CheckpointError, JobSpecError
from elastic.frameworks.base import Model
from elastic.frameworks.embeddings import told_of
from elastic.master.evaluator import BEST, EVALUATED
from elastic.master.kinds.preparation import checkpoint_path
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.strategy import AnyStrategy
from elastic.master.parameters.tables import Tables
from elastic.platforms.registry import MasterEnvironment
from elastic.policy.tasks.ledger import Ledger, LedgerError
from elastic.rows.arithmetic import kernel_of
from elastic.rows.base import RowStore, Table
from elastic.rows.memory import MemoryRows
from elastic.spec.job import JobSpec
from elastic.spec.model_def import ModelDef
from elastic.spec.platforms import JobKind
from elastic.spec.values import ExportForm, export_target


def restore(
    env: MasterEnvironment,
    store: AnyStrategy,
    ledger: Ledger,
    note: Callable[[str, str], None],
    is_first_life: bool,
    tables: Tables | None = None,
) -> Cut | None:
    """Go to the newest cut of this run or, with --resume, of this job.

    Args:
        env: The job, and where its cuts lie.
        store: Gets the cut's parameters and optimizer.
        ledger: Gets the cut's account.
        note: Told what was found, as kind and message of an event.
        is_first_life: Whether no master of this submission was lost.
        tables: Get the cut's rows; None where the model has none.

    Returns:
        The cut; None where the job begins with its first record.

    Raises:
        CheckpointError: There is nothing usable to resume from, it does not fit this job, or
            another run's checkpoints are in the way.
    """
    spec = env.spec
    folders, searched = _folders(env), _searched(env)
    damages: list[str] = []
    run_id = None if spec.resume else env.run_id
    found = newest_cut(searched, run_id, damages.append, partial(find_held, tables))
    for message in damages:
        other = f"{found[0].name} is used" if found else "there is no other to use"
        note("CheckpointDamaged", f"{message}; {other} instead")
    if found is None:
        _check_wanted(spec, folders, damages)
        if spec.resume and is_first_life:
            note(
                "NothingToResume",
                f"nothing to resume in {_any(folders)}: starts from the first record",
            )
        if not is_first_life:
            note("BegunAgain", "no cut of the job is there: it begins again with its first record")
        _settle_foreign_checkpoints(spec)
        return None
    path, cut = found
    _load(path, cut, store, ledger, spec, tables)
    note("Resumed", f"resumed from {path} (version {cut.version})")
    return cut


def held_versions(folder: Path, newest: int) -> list[int]:
    """Versions up to `newest` whose rows the store held for their cuts, oldest first."""
    versions = []
    for path in reversed(list_cuts(folder)):
        try:
            manifest = read_manifest(path)
        except CheckpointError:
            # Told of when cuts are read; nobody goes back to it.
            continue
        if manifest.version <= newest and manifest.holds_rows:
            versions.append(manifest.version)
    return versions


def with_group_of_cut(
    env: MasterEnvironment, spec: JobSpec, note: Callable[[str, str], None]
) -> JobSpec:
    """The job with the gradients of an update that it began with, unless its user names a number.

    With another maximum of workers there would be other records behind an update, and another
    number of updates, of which nobody was told.

    Args:
        env: Where cuts lie.
        spec: Of the job.
        note: Told where this is not what a new job would have.
    """
    if not spec.resume or spec.kind is not JobKind.TRAIN:
        return spec
    if spec.grads_to_wait is not None or spec.batch_range is not None or spec.is_async:
        return spec
    kept = _newest_group(_searched(env))
    if kept is None or kept == spec.gradients_per_update:
        return spec
    note(
        "GroupKept",
        f"grads_to_wait={kept} as before, whatever num_workers={spec.num_workers}: "
        f"--grads_to_wait {spec.gradients_per_update} has an update made of as many gradients as "
        "there can be workers now",
    )
    return spec.model_copy(update={"grads_to_wait": kept})


def _newest_group(folders: Sequence[Path]) -> int | None:
    for path in newest_first(folders):
        try:
            return read_manifest(path).grads_to_wait
        except CheckpointError:
            # Told of when the cuts themselves are read.
            continue
    return None


def _folders(env: MasterEnvironment) -> list[Path]:
    """Where the job's cuts are kept."""
    named = [Path(env.spec.checkpoint_dir)] if env.spec.checkpoint_dir else []
    # Who names the job's own folder must not be told everything twice.
    return list(dict.fromkeys([env.recovery_dir, env.checkpoint_dir, *named]))


def _searched(env: MasterEnvironment) -> list[Path]:
    """All folders with cuts, without what a process that was killed has left in them."""
    folders = _folders(env)
    # What was written for its evaluation is a cut like others. A cut from before it may name an
    # evaluation whose version has given way to it.
    others = [env.recovery_dir / EVALUATED, *(folder / BEST for folder in folders[1:])]
    for folder in [*folders, *others]:
        clean_up(folder)
    return [*folders, *others]


def find_held(tables: Tables | None, path: Path, cut: Cut) -> None:
    """Have the store go back to the rows of a cut; else these will be read from its files.

    A cut without files whose rows are there no more is removed: the job will come to that version
    again by another way, and to other rows.

    Raises:
        CheckpointError: They are nowhere any more.
    """
    rows = cut.rows
    if tables is None or rows is None or not rows.is_held or tables.store.go_back(cut.version):
        return
    if not rows.is_here:
        remove(path)
        raise CheckpointError(
            f"checkpoint {path} leaves its rows to the store, which has version {cut.version} no "
            "more"
        )
    cut.rows = replace(rows, is_held=False)


def _load(
    path: Path,
    cut: Cut,
    store: AnyStrategy,
    ledger: Ledger,
    spec: JobSpec,
    tables: Tables | None,
) -> None:
    if cut.ledger is None:
        raise CheckpointError(f"checkpoint {path} has no ledger: use it with --init_from")
    try:
        ledger.restore(cut.ledger)
        store.load(cut.version, cut.parameters, cut.state, cut.optimizer)
        if tables is not None:
            tables.go_back(cut.version, cut.rows)
        else:
            refuse_rows(cut.rows)
    except (LedgerError, CheckpointError) as error:
        raise CheckpointError(f"checkpoint {path} does not fit this job: {error}") from error
    if ledger.epoch > spec.num_epochs:
        raise CheckpointError(
            f"checkpoint {path} has trained {ledger.epoch} epochs, this job has "
            f"num_epochs={spec.num_epochs}: raise it"
        )
    if 0 < spec.max_steps < cut.version:
        raise CheckpointError(
            f"checkpoint {path} has {cut.version} updates, this job has "
            f"max_steps={spec.max_steps}: raise it"
        )


def _check_wanted(spec: JobSpec, folders: Sequence[Path], damages: Sequence[str]) -> None:
    """Refuse to begin anew where the user wants to go on from what is there, and damaged."""
    if not spec.resume or not damages:
        return
    tried = f"the only checkpoint in {_any(folders)} is not usable"
    if len(damages) > 1:
        tried = f"none of the {len(damages)} checkpoints in {_any(folders)} is usable"
    newest = damages[0] if len(damages) == 1 else f"the newest: {damages[0]}"
    raise CheckpointError(
        f"{tried}, so there is nothing to resume from: {newest}: start anew with --overwrite"
    )


def _settle_foreign_checkpoints(spec: JobSpec) -> None:
    """Remove or refuse what another run has left where this one keeps its checkpoints."""
    if spec.resume or not spec.checkpoint_dir:
        return
    folder = Path(spec.checkpoint_dir)
    if spec.overwrite:
        # Versions of theirs that ours has not reached would count as newer than ours.
        remove_all(folder)
        remove_all(folder / BEST)
    elif list_cuts(folder) or list_cuts(folder / BEST):
        raise CheckpointError(
            f"checkpoint_dir={spec.checkpoint_dir} holds checkpoints of another run: go on "
            f"from them with --resume, write over them with --overwrite, or name another folder"
        )


def _any(folders: Sequence[Path]) -> str:
    return " or ".join(map(str, folders))


def open_tables(
    spec: JobSpec,
    model_def: ModelDef,
    store: ParameterStore,
    at: Callable[[str], None],
    open_store: Callable[[], RowStore] = MemoryRows,
) -> Tables | None:
    """The tables that the model has, without rows yet; None where it has none.

    Args:
        spec: Of the job.
        model_def: The user's module.
        store: With the model and its optimizer.
        at: Told each step before it is taken.
        open_store: Makes the store that the rows will be in.

    Raises:
        UserError: The job cannot have tables as it is, or its store cannot be used.
        RowsLostError: The store does not answer.
    """
    tables = store.model.tables
    if not tables:
        if spec.embedding_staleness:
            raise JobSpecError(
                f"--embedding_staleness={spec.embedding_staleness} is about rows of embeddings, "
                "and the model has none: leave it out, or use elastic.embedding.Embedding"
            )
        return None
    _check_settings(spec, model_def, ", ".join(table.name for table in tables))
    where = f", in {spec.embedding_redis_url}" if spec.embedding_redis_url else ""
    at(f"tables of embeddings{where}")
    is_trained = spec.kind is JobKind.TRAIN
    if is_trained and spec.embedding_store == "ps":
        _check_parts(tables, spec.num_ps)
    kernel = kernel_of(store.updater.row_rule()) if is_trained else None
    opened = Tables(open_store(), tables, kernel)
    opened.open()
    return opened


def _check_settings(spec: JobSpec, model_def: ModelDef, names: str) -> None:
    if spec.get_model_steps > 1:
        raise JobSpecError(
            f"get_model_steps={spec.get_model_steps} has workers apply gradients of their own, and "
            f"the model has tables of embeddings ({names}), whose rows no worker changes: "
            "leave --get_model_steps out"
        )
    # Now, and not when all is trained.
    if (
        spec.output
        and export_target(spec.output, model_def.framework).form is ExportForm.SAVED_MODEL
    ):
        raise JobSpecError(
            f"--output={spec.output} is a SavedModel, which holds no Python, by which the tables "
            f"of embeddings ({names}) look up their rows: let --output end in .keras"
        )


def _check_parts(tables: Sequence[Table], num_ps: int) -> None:
    """See that each server may have rows of each table: one without would make none, in silence."""
    for table in tables:
        max_rows = table.life.max_rows
        if max_rows is not None and max_rows < num_ps:
            raise JobSpecError(
                f"the layer of table {table.name!r} has max_rows={max_rows}, of which each of the "
                f"--num_ps={num_ps} parameter servers has its part: give at least as many rows as "
                "servers"
            )


def check_store(spec: JobSpec, model: Model) -> None:
    """See that a Redis of the job's own has something to keep.

    Raises:
        JobSpecError: It would run for nothing.
    """
    if spec.num_redis and not model.tables:
        raise JobSpecError(
            "the model has no table of embeddings, and --embedding_store redis runs a Redis for "
            "nothing: leave it out"
        )


def told_of_tables(spec: JobSpec, model: Model) -> Sequence[tuple[str, str]]:
    """Events about what the job's settings come to with its model: their kinds and messages."""
    told = [] if model.replacement is None else [*told_of(model.replacement)]
    if spec.kind is JobKind.TRAIN and spec.embedding_store != "memory" and not model.tables:
        unused = (
            "the model has no table of embeddings, and --embedding_store "
            f"{spec.embedding_store} is for nothing: leave it out"
        )
        told.append(("EmbeddingStoreUnused", unused))
    return told


def begin_tables(spec: JobSpec, model_def: ModelDef, tables: Tables, version: int = 0) -> None:
    """Have the rows that the job begins with: of a checkpoint or an exported model, or none.

    Raises:
        CheckpointError: These have other tables, or leave their rows to a store.
        RowsLostError: The store does not answer.
    """
    tables.begin(version, _first_rows(spec, model_def, tables))


def _first_rows(spec: JobSpec, model_def: ModelDef, tables: Tables) -> CutRows | None:
    if spec.model:
        export = export_target(spec.model, model_def.framework).path
        return exported_tables(export, tables.tables)
    if not spec.checkpoint_filename_for_init:
        return None
    path = checkpoint_path(Path(spec.checkpoint_filename_for_init))
    rows = read_rows(path)
    if rows is None:
        raise CheckpointError(f"checkpoint {path} has no rows, and this model has tables of them")
    if not rows.is_here:
        raise CheckpointError(
            f"checkpoint {path} leaves its rows to the store of its job: use one of a "
            "--checkpoint_dir, which has them"
        )
    return rows
