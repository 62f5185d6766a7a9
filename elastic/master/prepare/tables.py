"""The tables of a model's embeddings: checked, opened, and begun."""

from collections.abc import Callable, Sequence
from pathlib import Path

from elastic.checkpoints.rows import CutRows, read_rows
from elastic.checkpoints.table_files import exported_tables
from elastic.errors import CheckpointError, JobSpecError
from elastic.frameworks.base import Model
from elastic.frameworks.replacing import told_of
from elastic.master.parameters.store import ParameterStore
from elastic.master.parameters.tables import Tables
from elastic.master.prepare.preparation import checkpoint_path
from elastic.rows.base import Table
from elastic.rows.kernels import kernel_of
from elastic.rows.memory import MemoryRows
from elastic.rows.store import RowStore
from elastic.spec.export_form import ExportForm, export_target
from elastic.spec.job import JobSpec
from elastic.spec.kinds import JobKind
from elastic.spec.model_def import ModelDef


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
