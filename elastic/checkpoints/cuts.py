"""Cuts: parameters, optimizer, version, ledger and metrics of one moment, on disk.

A cut is a folder `version-NNNNNNNNNN` with `tensors.safetensors`, a file of rows for each table of
an embedding, and `manifest.json`. It is
written under another name, synced and renamed, so that a folder of that name is whole; the
manifest's checksum and its digests of the other files tell whether it still is.
"""

import os
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from elastic.checkpoints.contents import (
    FORMAT,
    MANIFEST,
    TENSORS,
    CutRows,
    FileDigest,
    Manifest,
    RowsForm,
    damaged,
    digest_of,
    read_manifest,
    rows_of_manifest,
    unreadable,
    write_manifest,
    write_rows,
)
from elastic.errors import CheckpointError
from elastic.frameworks.base import Array, Tensors, UpdaterState, disk_error

PREFIX: Final = "version-"
GROUPS: Final = ("parameters", "state", "optimizer")
BEGUN: Final = ".begun"
REPLACED: Final = ".replaced"
REMOVED: Final = ".removed"


@dataclass(slots=True)
class Cut:
    """One moment of a job.

    Attributes:
        run_id: Tells the runs of one job name apart; a restarted master has the same.
        ledger: The ledger's snapshot, None in a cut that only holds initial parameters.
        metrics: The evaluation results so far.
        evaluated_on: Tells the records that they are of from others.
        steering: What callbacks have seen and decided.
        grads_to_wait: Gradients behind an update; None where each is applied as it comes.
        rows: Of its tables; None where the model has none.
    """

    version: int
    parameters: Tensors
    state: Tensors
    optimizer: UpdaterState
    ledger: dict[str, Any] | None
    run_id: str = ""
    job_name: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    evaluated_on: str = ""
    loss: float | None = None
    steering: dict[str, Any] = field(default_factory=dict)
    grads_to_wait: int | None = None
    created_s: float = 0.0
    rows: CutRows | None = None


def _unused(_path: Path, _cut: Cut) -> None:
    """All of it is in its folder."""


def _unfenced() -> None:
    """Nobody else writes here."""


def write_cut(folder: Path, cut: Cut, check: Callable[[], None] = _unfenced) -> Path:
    """Write a cut below `folder`; afterwards it is there whole, or not at all.

    Args:
        folder: Where cuts are.
        cut: What to write.
        check: Called right before the cut can be seen; what it raises goes on to the caller.

    Raises:
        OSError: The disk is full, or not writable; what was begun has been removed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = cut_path(folder, cut.version)
    temporary = _new_temporary(final)
    temporary.mkdir()
    try:
        tensors = {
            f"{group}/{name}": array
            for group, arrays in zip(
                GROUPS, (cut.parameters, cut.state, cut.optimizer.tensors), strict=True
            )
            for name, array in arrays.items()
        }
        _save(temporary / TENSORS, tensors)
        manifest = _manifest(cut, digest_of(temporary / TENSORS))
        if cut.rows is not None:
            manifest["rows"] = write_rows(temporary, cut.rows)
        write_manifest(temporary, manifest)
        _sync_all(temporary)
        check()
        _put(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def copy_cut(path: Path, folder: Path, check: Callable[[], None] = _unfenced) -> Path:
    """Copy a cut to another folder; afterwards it is there whole, or not at all.

    Args:
        path: The cut.
        folder: Where the copy goes.
        check: See `write_cut`.

    Raises:
        OSError: It cannot be read, or the disk is full or not writable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / path.name
    temporary = _new_temporary(final)
    try:
        shutil.copytree(path, temporary)
        _sync_all(temporary)
        check()
        _put(temporary, final)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return final


def _new_temporary(final: Path) -> Path:
    """Where a cut is begun; of another name for each, as two masters may write on one volume."""
    return final.with_name(f".{final.name}.{secrets.token_hex(4)}{BEGUN}")


def read_cut(path: Path) -> Cut:
    """Read a cut and check that it is whole.

    Raises:
        CheckpointError: It is damaged: a file is missing or not what it was when written.
    """
    manifest = read_manifest(path)
    try:
        if digest_of(path / TENSORS) != manifest.files.tensors:
            raise damaged(path, f"{TENSORS} has changed")
        cut = _from_manifest(manifest, load_file(path / TENSORS))
    except OSError as error:
        raise unreadable(path, TENSORS, error) from error
    except SafetensorError as error:
        raise damaged(path, f"{TENSORS} holds no tensors: {error}") from error
    except KeyError as error:
        raise damaged(path, f"{TENSORS} and {MANIFEST} differ on {error}") from error
    cut.rows = rows_of_manifest(path, manifest)
    return cut


def cut_path(folder: Path, version: int) -> Path:
    """Where the cut of a version is, if it is there."""
    return folder / f"{PREFIX}{version:010d}"


def version_of(path: Path) -> int:
    """The version that a cut is of, by its name."""
    return int(path.name.removeprefix(PREFIX))


def list_cuts(folder: Path) -> list[Path]:
    """The cuts of a folder, newest first: by version, which is in the name."""
    if not folder.is_dir():
        return []
    return sorted((p for p in folder.iterdir() if p.name.startswith(PREFIX)), reverse=True)


def no_cut_at(path: Path) -> str:
    """For people, that a path is no cut and has none: what was looked for, and where one is."""
    if not path.exists():
        return f"{path} is not there, so neither a checkpoint nor a folder of them"
    below = next((path / name for name in ("checkpoints", "cuts") if list_cuts(path / name)), None)
    return (
        f"{path} is neither a checkpoint nor a folder of them: it has no {MANIFEST}, and no folder "
        f"{PREFIX}N{f': name {below}' if below else ''}"
    )


def newest_first(folders: Sequence[Path]) -> list[Path]:
    """The cuts of several folders."""
    return sorted(
        (path for folder in folders for path in list_cuts(folder)),
        key=lambda path: (path.name, _created_s(path)),
        reverse=True,
    )


def newest_cut(
    folders: Sequence[Path],
    run_id: str | None,
    on_damaged: Callable[[str], None],
    go_back: Callable[[Path, Cut], None] = _unused,
) -> tuple[Path, Cut] | None:
    """The newest usable cut; damaged ones are told, newest first, and passed over.

    Args:
        folders: Where to look.
        run_id: Take cuts of this run only; None for any.
        on_damaged: Called with what is wrong with a cut that cannot be used.
        go_back: Called with a cut before it is taken; raises `CheckpointError` where that cannot
            be used, since what it leaves to others is not there.
    """
    for path in newest_first(folders):
        try:
            cut = read_cut(path)
            if run_id is not None and cut.run_id != run_id:
                continue
            go_back(path, cut)
        except CheckpointError as error:
            on_damaged(str(error))
            continue
        return path, cut
    return None


def prune(folder: Path, keep: int, newest: Path, check: Callable[[], None] = _unfenced) -> None:
    """Remove the oldest cuts but `keep` up to `newest`; 0 keeps all.

    What stands beyond the cut just written was damaged when the master went back behind it, and
    must not push out a good one. Where all that stay have files of rows in common, which may be
    damaged, the newest one that has others stays as well.

    Args:
        folder: Where cuts are.
        keep: How many stay.
        newest: The one just written.
        check: Called right before each removal; what it raises goes on to the caller.
    """
    if keep == 0:
        return
    cuts = [path for path in list_cuts(folder) if path.name <= newest.name]
    stay, old = cuts[:keep], cuts[keep:]
    stay += _with_other_rows(stay, old)
    for path in old:
        if path not in stay:
            check()
            remove(path)


def _with_other_rows(stay: Sequence[Path], old: Sequence[Path]) -> Sequence[Path]:
    """The newest old cut without the files of rows that all others have; none where one has."""
    said = _rows_said(stay[0])
    if said is None or not said.changes_bytes:
        return ()
    others = [path for path in (*stay[1:], *old) if _has_others(path, said)]
    return [path for path in others[:1] if path in old]


def _has_others(path: Path, said: RowsForm) -> bool:
    rows = _rows_said(path)
    return rows is not None and rows.are_here and rows.whole != said.whole


def _rows_said(path: Path) -> RowsForm | None:
    try:
        return read_manifest(path).rows
    except CheckpointError:
        return None


def remove_all(folder: Path) -> None:
    """Remove every cut of a folder; what else is in it stays."""
    for path in list_cuts(folder):
        remove(path)


def clean_up(folder: Path) -> None:
    """Remove what a process that was killed while it wrote or removed cuts has left behind."""
    if not folder.is_dir():
        return
    for path in folder.glob(f".{PREFIX}*{REPLACED}"):
        final = folder / path.name.removesuffix(REPLACED).removeprefix(".")
        if not final.exists():
            # Killed between the two renames: the new one was not yet there.
            path.rename(final)
    for suffix in (BEGUN, REPLACED, REMOVED):
        for path in folder.glob(f".{PREFIX}*{suffix}"):
            shutil.rmtree(path, ignore_errors=True)


def _created_s(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def remove(path: Path) -> None:
    """Remove a cut such that no half of it is ever taken for a whole one."""
    grave = path.with_name(f".{path.name}{REMOVED}")
    shutil.rmtree(grave, ignore_errors=True)
    path.rename(grave)
    shutil.rmtree(grave, ignore_errors=True)


def _put(temporary: Path, final: Path) -> None:
    """Give a whole cut its name; `clean_up` knows what to do if this is cut short."""
    replaced = final.with_name(f".{final.name}{REPLACED}")
    # The same version may be there from before a master was set back; this one is newer.
    if final.exists():
        final.rename(replaced)
    temporary.rename(final)
    _sync(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _save(path: Path, tensors: Mapping[str, Array]) -> None:
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        raise disk_error(error, path) from error


def _manifest(cut: Cut, tensors: FileDigest) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": cut.version,
        "job_name": cut.job_name,
        "run_id": cut.run_id,
        "created_s": cut.created_s or time.time(),
        "loss": cut.loss,
        "metrics": cut.metrics,
        "evaluated_on": cut.evaluated_on,
        "order": {"parameters": list(cut.parameters), "state": list(cut.state)},
        "optimizer": cut.optimizer.values,
        "ledger": cut.ledger,
        "steering": cut.steering,
        "grads_to_wait": cut.grads_to_wait,
        "files": {TENSORS: tensors.model_dump()},
    }


def _from_manifest(manifest: Manifest, tensors: Mapping[str, Array]) -> Cut:
    groups: dict[str, Tensors] = {group: {} for group in GROUPS}
    for key, array in tensors.items():
        group, _, name = key.partition("/")
        groups[group][name] = array
    return Cut(
        version=manifest.version,
        parameters={name: groups["parameters"][name] for name in manifest.order.parameters},
        state={name: groups["state"][name] for name in manifest.order.state},
        optimizer=UpdaterState(groups["optimizer"], manifest.optimizer),
        ledger=manifest.ledger,
        run_id=manifest.run_id,
        job_name=manifest.job_name,
        metrics=manifest.metrics,
        evaluated_on=manifest.evaluated_on,
        loss=manifest.loss,
        steering=manifest.steering,
        grads_to_wait=manifest.grads_to_wait,
        created_s=manifest.created_s,
    )


def _sync_all(folder: Path) -> None:
    for path in (*folder.iterdir(), folder):
        _sync(path)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
