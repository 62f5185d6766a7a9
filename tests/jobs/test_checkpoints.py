"""Which checkpoints are there, that each is one moment of the job, and what a damaged one costs."""

import json
import re
from pathlib import Path

import pytest
from support.statuses import each_epoch
from support.thread_job import events, obedient_spec, run_job, write_records

from elastic.checkpoints.contents import MANIFEST, TENSORS
from elastic.checkpoints.cuts import Cut, list_cuts, read_cut, write_cut
from elastic.frameworks.base import UpdaterState
from elastic.spec.status import JobPhase

NUM_RECORDS = 46  # 23 updates of two records


@pytest.fixture
def data(tmp_path):
    return write_records(tmp_path / "train.npz", num_records=NUM_RECORDS)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


def _spec(data, folder, **settings):
    defaults = {"checkpoint_dir": str(folder), "checkpoint_steps": 5, "minibatch_size": 2}
    return obedient_spec(data, NUM_RECORDS, **{**defaults, **settings})


def _versions(folder):
    assert not [path.name for path in folder.iterdir() if path.name.startswith(".")]
    return [read_cut(path).version for path in reversed(list_cuts(folder))]


def _counts(status):
    return read_cut(Path(status.checkpoint)).parameters["counts"].tolist()


@pytest.mark.parametrize(
    ("steps", "keep", "versions"),
    [
        pytest.param(5, 0, [5, 10, 15, 20, 23], id="all"),
        pytest.param(5, 2, [20, 23], id="the-newest-two"),
        pytest.param(0, 2, [23], id="only-the-last"),
        pytest.param(23, 1, [23], id="the-last-is-due-anyway"),
    ],
)
def test_exactly_the_checkpoints_asked_for_are_there(steps, keep, versions, data, folder, tmp_path):
    spec = _spec(data, folder, checkpoint_steps=steps, keep_checkpoint_max=keep)
    status = run_job(spec.model_copy(update={"evaluation_data_dir": str(data)}), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert _versions(folder) == versions
    assert status.checkpoint == str(folder / "version-0000000023")
    assert read_cut(folder / "version-0000000023").metrics == status.metrics


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param({"grads_to_wait": 1}, id="sync-1"),
        pytest.param({"grads_to_wait": 3}, id="sync-3"),
        pytest.param({"use_async": True}, id="async"),
        pytest.param({"get_model_steps": 3}, id="local-3"),
    ],
)
def test_every_cut_is_one_moment(mode, data, folder, tmp_path):
    spec = _spec(
        data, folder, checkpoint_steps=1, num_workers="3", num_epochs=3,
        recovery_interval=0.01, records_per_task=7, **mode,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    cuts = [read_cut(path) for path in (*list_cuts(folder), *list_cuts(tmp_path / "cuts"))]
    assert len(cuts) >= status.progress.model_version
    for cut in cuts:
        done = cut.ledger["epoch"] * NUM_RECORDS + cut.ledger["committed"]
        assert cut.parameters["counts"].sum() == done, cut.version
    assert _counts(status) == [3.0] * NUM_RECORDS


def _flip_a_byte(path):
    content = bytearray((path / TENSORS).read_bytes())
    content[-1] ^= 1
    (path / TENSORS).write_bytes(content)


def _truncate(path):
    content = (path / TENSORS).read_bytes()
    (path / TENSORS).write_bytes(content[: len(content) // 2])


def _older_format(path):
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps(manifest | {"format": 0}))


def _edit(change, keep_checksum=True):
    """Change the manifest; without its checksum it is as an older version wrote it."""

    def edit(path):
        content = json.loads((path / MANIFEST).read_text())
        change(content)
        if not keep_checksum:
            del content["checksum"]
        (path / MANIFEST).write_text(json.dumps(content))

    return edit


def _as_before_checksums(change):
    return _edit(change, keep_checksum=False)


DAMAGES = {
    "a-byte": (_flip_a_byte, "is damaged: tensors.safetensors has changed"),
    "truncated": (_truncate, "is damaged: tensors.safetensors has changed"),
    "no-tensors": (
        lambda path: (path / TENSORS).unlink(),
        "is damaged: tensors.safetensors is missing",
    ),
    "no-manifest": (
        lambda path: (path / MANIFEST).unlink(),
        "is damaged: manifest.json is missing",
    ),
    "empty-manifest": (
        lambda path: (path / MANIFEST).write_text(""),
        "is damaged: manifest.json is no JSON document",
    ),
    "manifest-of-a-list": (
        lambda path: (path / MANIFEST).write_text("[]"),
        "is damaged: manifest.json holds no fields",
    ),
    "manifest-is-a-folder": (
        lambda path: ((path / MANIFEST).unlink(), (path / MANIFEST).mkdir()),
        "cannot be read: manifest.json: Is a directory",
    ),
    "other-format": (_older_format, "has format 0, this version reads 1"),
    "a-value": (
        _edit(lambda content: content["optimizer"]["param_groups"][0].update(lr=0.91)),
        "is damaged: manifest.json has changed",
    ),
    "no-run": (
        _edit(lambda content: content.pop("run_id")),
        "is damaged: manifest.json has changed",
    ),
    "old-without-a-field": (
        _as_before_checksums(lambda content: content.pop("metrics")),
        "is damaged: manifest.json has no metrics",
    ),
    "old-with-text-for-a-number": (
        _as_before_checksums(lambda content: content.update(version="23")),
        "is damaged: manifest.json has no usable version: Input should be a valid integer",
    ),
    "old-with-an-unknown-field": (
        _as_before_checksums(lambda content: content.update(verzion=23)),
        "is damaged: manifest.json has an unknown field verzion",
    ),
    "old-without-a-part-of-the-ledger": (
        _as_before_checksums(lambda content: content["ledger"].pop("epoch")),
        "is damaged: the ledger in manifest.json has no epoch",
    ),
    "old-with-another-name": (
        _as_before_checksums(lambda content: content["order"].update(parameters=["weights"])),
        "is damaged: tensors.safetensors and manifest.json differ on 'weights'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("keep", [0, 2])
def test_a_damaged_checkpoint_is_named_and_the_one_before_used(
    damage, keep, data, folder, tmp_path
):
    run_job(_spec(data, folder, keep_checkpoint_max=keep), tmp_path)
    break_it, words = DAMAGES[damage]
    newest, before = list_cuts(folder)[:2]
    break_it(newest)
    status = run_job(
        _spec(data, folder, keep_checkpoint_max=keep, resume=True, num_epochs=2), tmp_path
    )
    assert status.phase is JobPhase.SUCCEEDED
    assert events(status, "CheckpointDamaged") == [
        f"checkpoint {newest} {words}; {before.name} is used instead"
    ]
    assert events(status, "Resumed") == [f"resumed from {before} (version 20)"]
    assert _counts(status) == [2.0] * NUM_RECORDS
    kept = [read_cut(path).version for path in list_cuts(folder) if path != newest]
    assert kept == ([46, 45] if keep else [46, 45, 40, 35, 30, 25, 20, 15, 10, 5])


def test_a_manifest_of_an_older_version_has_no_checksum(data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path)
    newest = list_cuts(folder)[0]
    _as_before_checksums(lambda content: None)(newest)
    status = run_job(_spec(data, folder, resume=True, num_epochs=2), tmp_path)
    assert events(status, "Resumed") == [f"resumed from {newest} (version 23)"]
    assert not events(status, "CheckpointDamaged")


def test_the_manifest_of_a_diverged_job_is_whole(tmp_path):
    cut = Cut(3, {}, {}, UpdaterState(), None, metrics={"loss": float("nan")}, loss=float("inf"))
    assert read_cut(write_cut(tmp_path, cut)).loss == float("inf")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param(
            lambda optimizer: [optimizer.pop(key) for key in ("slots", "param_groups")],
            "the optimizer's state lacks its param_groups, slots",
            id="no-state",
        ),
        pytest.param(
            lambda optimizer: optimizer.update(param_groups=[]),
            "the optimizer's state does not fit: loading it into CountingSGD failed: ValueError: "
            "loaded state dict has a different number of parameter groups",
            id="another-state",
        ),
        pytest.param(
            lambda optimizer: optimizer.update({"class": 3}),
            "the optimizer's state was saved from 3 and this is CountingSGD: use the same "
            "optimizer and schedule",
            id="no-name",
        ),
    ],
)
def test_an_optimizer_that_cannot_be_loaded_is_an_error(change, words, data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path)
    newest = list_cuts(folder)[0]
    _as_before_checksums(lambda content: change(content["optimizer"]))(newest)
    status = run_job(_spec(data, folder, resume=True, num_epochs=2), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == f"checkpoint {newest} does not fit this job: {words}"


UNKEPT = r"the optimizer's .* holds a object"


def test_a_state_that_no_checkpoint_can_hold_ends_the_job_at_the_first_cut(tmp_path):
    data = write_records(tmp_path / "train.npz", num_records=NUM_RECORDS, delay_ms=20)
    spec = obedient_spec(
        data, NUM_RECORDS, model_def="unkept.CustomModel", minibatch_size=2, recovery_interval=0.05,
        num_epochs=50,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert re.search(UNKEPT, status.message)
    assert status.progress.records_done < status.progress.records_total / 2


def test_a_state_that_could_never_be_kept_is_found_before_anything_is_trained(data, tmp_path):
    spec = obedient_spec(
        data, NUM_RECORDS, model_def="unkept.CustomModel", optimizer="secretive_from_the_start"
    )
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "ModelDef")
    assert re.search(UNKEPT, status.message)
    assert status.progress.model_version == 0


def test_a_job_is_not_resumed_from_damaged_checkpoints_only(data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path / "one")
    newest = list_cuts(folder)[0]
    for path in list_cuts(folder):
        (path / MANIFEST).unlink()
    two = tmp_path / "two"
    status = run_job(_spec(data, folder, resume=True), two)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        f"none of the 5 checkpoints in {two}/cuts or {two}/checkpoints or {folder} is usable, so "
        f"there is nothing to resume from: the newest: checkpoint {newest} is damaged: "
        "manifest.json is missing: start anew with --overwrite"
    )
    told = events(status, "CheckpointDamaged")
    assert len(told) == 5
    assert all(message.endswith("; there is no other to use instead") for message in told)


def test_a_job_with_nothing_to_resume_says_so_and_starts(data, folder, tmp_path):
    status = run_job(_spec(data, folder, resume=True), tmp_path / "job")
    assert status.phase is JobPhase.SUCCEEDED
    assert events(status, "NothingToResume") == [
        f"nothing to resume in {tmp_path}/job/cuts or {tmp_path}/job/checkpoints or {folder}: "
        "starts from the first record"
    ]
    again = run_job(_spec(data, folder, resume=True, num_epochs=2), tmp_path / "job")
    assert not events(again, "NothingToResume")
    assert _counts(again) == [2.0] * NUM_RECORDS


def test_checkpoints_without_a_folder_are_in_the_jobs_own(data, tmp_path):
    spec = _spec(data, "", keep_checkpoint_max=3)
    status = run_job(spec, tmp_path)
    own = tmp_path / "checkpoints"
    assert _versions(own) == [15, 20, 23]
    assert status.checkpoint == str(own / "version-0000000023")
    _flip_a_byte(own / "version-0000000023")
    # Found also where no more are asked for.
    status = run_job(_spec(data, "", checkpoint_steps=0, resume=True, num_epochs=2), tmp_path)
    assert events(status, "Resumed") == [f"resumed from {own}/version-0000000020 (version 20)"]
    assert _counts(status) == [2.0] * NUM_RECORDS


def test_a_damaged_checkpoint_does_not_push_out_a_good_one(data, folder, tmp_path):
    """The second record from the end is poison, so the job ends before it is as far again."""
    run_job(_spec(data, folder, shuffle="none", keep_checkpoint_max=2), tmp_path)
    newest, _ = list_cuts(folder)
    _flip_a_byte(newest)
    write_records(data, {44: 4}, NUM_RECORDS)
    spec = _spec(
        data, folder, shuffle="none", keep_checkpoint_max=1, checkpoint_steps=1, resume=True
    )
    status = run_job(spec, tmp_path)
    assert status.message.startswith("loss is nan at step 23")
    assert [path.name for path in list_cuts(folder)] == [newest.name, "version-0000000022"]
    assert status.checkpoint == str(folder / "version-0000000022")
    assert read_cut(folder / "version-0000000022").parameters["counts"].sum() == 44


def test_checkpoints_of_another_run_are_refused(data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path / "one")
    status = run_job(_spec(data, folder), tmp_path / "two")
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        f"checkpoint_dir={folder} holds checkpoints of another run: go on from them with --resume, "
        "write over them with --overwrite, or name another folder"
    )
    assert _versions(folder) == [5, 10, 15, 20, 23]


def test_overwriting_leaves_the_new_runs_checkpoints_only(data, folder, tmp_path):
    run_job(_spec(data, folder, num_epochs=2), tmp_path / "one")
    spec = _spec(data, folder, overwrite=True, keep_checkpoint_max=2)
    status = run_job(spec, tmp_path / "two")
    assert status.phase is JobPhase.SUCCEEDED
    assert _versions(folder) == [20, 23]
    assert _counts(status) == [1.0] * NUM_RECORDS


def test_a_job_can_begin_from_a_checkpoint(data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path / "one")
    for source in (folder, folder / "version-0000000020"):
        begun = sum(
            read_cut(source if source != folder else list_cuts(folder)[0]).parameters["counts"]
        )
        spec = obedient_spec(
            data, NUM_RECORDS, checkpoint_filename_for_init=str(source), minibatch_size=2
        )
        status = run_job(spec, tmp_path / source.name)
        assert status.phase is JobPhase.SUCCEEDED
        assert status.progress.model_version == 23, "it counts its own updates"
        assert sum(_counts(status)) == begun + NUM_RECORDS


def test_a_resumed_job_goes_on_to_more_epochs(data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path)
    status = run_job(_spec(data, folder, resume=True, num_epochs=3), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert _counts(status) == [3.0] * NUM_RECORDS
    assert len(each_epoch(status)) == 3


def test_a_job_that_is_done_is_not_trained_on(data, folder, tmp_path):
    spec = _spec(data, folder).model_copy(update={"evaluation_data_dir": str(data)})
    first = run_job(spec, tmp_path)
    status = run_job(spec.model_copy(update={"resume": True}), tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    assert _counts(status) == [1.0] * NUM_RECORDS
    assert status.metrics == first.metrics
    assert status.progress.loss == first.progress.loss is not None
    assert not events(status, "Evaluated")


def test_a_resumed_job_cannot_have_fewer_epochs_than_it_has_trained(data, folder, tmp_path):
    run_job(_spec(data, folder, num_epochs=2), tmp_path)
    status = run_job(_spec(data, folder, resume=True, num_epochs=1), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        f"checkpoint {folder}/version-0000000046 has trained 2 epochs, this job has num_epochs=1: "
        "raise it"
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        pytest.param({"num_records": 48}, "records=46, this job has records=48", id="records"),
        pytest.param(
            {"seed": 1}, "seed=0, this job has seed=1", id="seed"
        ),
    ],
)  # fmt: skip
def test_a_resumed_job_must_have_the_same_records(change, words, data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path)
    num_records = change.pop("num_records", NUM_RECORDS)
    write_records(data, num_records=num_records)
    status = run_job(_spec(data, folder, resume=True, num_epochs=2, **change), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        f"checkpoint {folder}/version-0000000023 does not fit this job: it was taken with {words}"
    )
    assert _versions(folder) == [5, 10, 15, 20, 23]


def test_a_resumed_job_must_have_the_same_files(data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path)
    other = write_records(data.with_name("other.npz"), num_records=NUM_RECORDS)
    status = run_job(_spec(other, folder, resume=True, num_epochs=2), tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        f"checkpoint {folder}/version-0000000023 does not fit this job: it was taken with other "
        "files of data, or other numbers of records in them"
    )


def test_a_resumed_job_must_have_the_same_model(data, folder, tmp_path):
    run_job(_spec(data, folder), tmp_path)
    spec = _spec(data, folder, resume=True, num_epochs=2, model_params={"num_records": 50})
    status = run_job(spec, tmp_path)
    assert (status.phase, status.reason) == (JobPhase.FAILED, "Checkpoint")
    assert status.message == (
        f"checkpoint {folder}/version-0000000023 does not fit this job: the parameters do not fit "
        "this model: counts is float32[50] here and float32[46] there: use the model they were "
        "saved from"
    )


def test_a_full_disk_costs_checkpoints_and_nothing_else(small_disk, tmp_path):
    num_records = 10_000  # 40 KB a checkpoint
    data = write_records(tmp_path / "train.npz", num_records=num_records)
    spec = obedient_spec(
        data, num_records, minibatch_size=500, records_per_task=2000,
        checkpoint_dir=str(small_disk), checkpoint_steps=1,
    )  # fmt: skip
    status = run_job(spec, tmp_path)
    assert status.phase is JobPhase.SUCCEEDED
    written = _versions(small_disk)
    assert 3 <= len(written) < 20
    failures = events(status, "CheckpointFailed")
    assert failures == [
        f"checkpoint of version {version} could not be written to {small_disk}: "
        "No space left on device: free space there or name another path"
        for version in range(written[-1] + 1, 21)
    ]
    assert status.checkpoint_problem == (
        f"NOT in {small_disk}: No space left on device: free space there or name another path, "
        "and run the job again with --resume"
    )
    for path in list_cuts(small_disk):
        cut = read_cut(path)
        assert cut.parameters["counts"].sum() == cut.ledger["committed"]
    # The trained parameters are kept where there is room for them.
    assert Path(status.checkpoint).parent == tmp_path / "cuts"
    assert _counts(status) == [1.0] * num_records


def test_a_checkpoint_follows_once_there_is_room(small_disk, tmp_path):
    num_records = 10_000
    data = write_records(tmp_path / "train.npz", num_records=num_records)
    spec = obedient_spec(
        data, num_records, minibatch_size=5000, records_per_task=5000,
        checkpoint_dir=str(small_disk),
    )  # fmt: skip
    # Room for the probe of a job that begins, and for no checkpoint.
    filling = small_disk / "filling"
    filling.write_bytes(bytes(240 * 1024))
    status = run_job(spec, tmp_path)
    assert status.checkpoint_problem.startswith(f"NOT in {small_disk}: ")
    assert Path(status.checkpoint).parent == tmp_path / "cuts"
    filling.unlink()
    status = run_job(spec.model_copy(update={"resume": True}), tmp_path)
    assert status.checkpoint_problem == ""
    assert Path(status.checkpoint).parent == small_disk
    assert _counts(status) == [1.0] * num_records
