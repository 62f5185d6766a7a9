"""Whole jobs whose rows are in a Redis of the user's."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.datasets import prepared_dir
from support.redis_servers import PASSWORD, redis_cluster, redis_server
from support.rows import check_counts, check_lives
from support.thread_job import ZOO, ThreadJob, events, make_spec
from support.tls_proxy import encrypting, write_certificate

from elastic.checkpoints.cuts import list_cuts, read_cut, version_of
from elastic.errors import UserError
from elastic.rows import cached
from elastic.rows.redis.link import RedisLink
from elastic.spec.status import JobPhase
from elastic.spec.values import PASSWORD_VARIABLE, parse_redis_url

NUM_RECORDS = 90
STRANGER = "somebody:else"


@pytest.fixture
def server(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    with redis_server(tmp_path / "redis") as server:
        with server.client() as client:
            client.set(STRANGER, "1")
        yield server


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    with redis_cluster(tmp_path / "cluster") as cluster:
        yield cluster


def spec_of(server, life=None, **settings):
    url = f"redis://127.0.0.1:{server.address.port}"
    settings = {"embedding_redis_url": url, **settings}
    return make_spec(
        "embedded_counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={"num_records": NUM_RECORDS, "life": life},
        embedding_store="redis",
        **settings,
    )


def keys_of(server):
    with server.client() as client:
        return client.keys("*")


@pytest.mark.parametrize("updates", [{}, {"use_async": True}], ids=["sync", "async"])
def test_a_job_counts_each_record_and_leaves_nothing_behind(updates, server, tmp_path):
    job = ThreadJob(spec_of(server, num_epochs=2, num_workers="2", **updates), tmp_path / "cuts")
    status = job.run()
    assert status.phase is JobPhase.SUCCEEDED, status
    check_counts(read_cut(Path(status.checkpoint)), NUM_RECORDS, 2)
    assert keys_of(server) == [STRANGER]


def test_an_encrypted_server_is_used_where_its_certificate_is_trusted(server, tmp_path):
    chain, key = write_certificate(tmp_path)
    with encrypting(server.address.port, chain, key) as port:
        url = f"rediss://127.0.0.1:{port}"
        spec = spec_of(server, embedding_redis_url=url, embedding_redis_ca=str(chain))
        status = ThreadJob(spec, tmp_path / "cuts").run()
    assert status.phase is JobPhase.SUCCEEDED, status
    check_counts(read_cut(Path(status.checkpoint)), NUM_RECORDS, 1)


@pytest.mark.parametrize(("host", "is_known"), [("127.0.0.1", False), ("127.0.0.2", True)])
def test_another_certificate_ends_the_job_at_once(host, is_known, server, tmp_path):
    """Where nobody vouches for it, or not for this address."""
    chain, key = write_certificate(tmp_path, host)
    with encrypting(server.address.port, chain, key) as port:
        address = parse_redis_url(f"rediss://127.0.0.1:{port}", PASSWORD)
        address = replace(address, authorities=chain.read_text() if is_known else "")
        link = RedisLink(lambda: address, 3600.0)
        with pytest.raises(UserError, match="shows a certificate that cannot be trusted"):
            link.call(lambda client: client.ping())


def test_authorities_that_are_none_are_refused(server, tmp_path):
    (tmp_path / "empty.pem").write_text("nothing")
    url = f"rediss://127.0.0.1:{server.address.port}"
    for path in ("empty.pem", "missing.pem"):
        spec = spec_of(server, embedding_redis_url=url, embedding_redis_ca=str(tmp_path / path))
        status = ThreadJob(spec, tmp_path / "cuts").run()
        assert status.phase is JobPhase.FAILED
        assert f"{path} cannot be read where the master runs" in status.message


def test_a_model_without_tables_needs_no_server_and_is_told_so(server, tmp_path):
    spec = spec_of(server)
    params = {"num_records": NUM_RECORDS, "has_table": False}
    job = ThreadJob(spec.model_copy(update={"model_params": params}), tmp_path / "cuts")
    status = job.run()
    assert status.phase is JobPhase.SUCCEEDED, status
    (told,) = events(status, "EmbeddingStoreUnused")
    assert told.endswith("--embedding_store redis is for nothing: leave it out")


def test_no_redis_runs_for_a_model_without_tables(tmp_path):
    spec = make_spec(
        "embedded_counting_torch.CustomModel",
        prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz",
        model_zoo=str(ZOO),
        model_params={"num_records": NUM_RECORDS, "has_table": False},
        embedding_store="redis",
    )
    status = ThreadJob(spec, tmp_path / "cuts").run()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "JobSpec")
    assert status.message == (
        "the model has no table of embeddings, and --embedding_store redis runs a Redis for "
        "nothing: leave it out"
    )


def test_no_more_rows_than_are_asked_for_are_in_the_server(server, tmp_path):
    life = {"admit_after": 2, "expire_after": 30, "max_rows": 40}
    spec = spec_of(server, life, num_epochs=20, num_workers="2")
    with ThreadJob(spec, tmp_path / "cuts") as job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.epoch >= 3)
        with server.client() as client:
            [key] = [key for key in keys_of(server) if key.endswith(":row:counted")]
            most = client.hlen(key)
        status = job.wait()
    assert 0 < most <= 40
    assert status.phase is JobPhase.SUCCEEDED, status
    check_lives(read_cut(Path(status.checkpoint)), NUM_RECORDS, 20, life)
    assert keys_of(server) == [STRANGER]


def test_rows_are_in_the_server_while_the_job_runs(server, tmp_path):
    job = ThreadJob(spec_of(server, num_epochs=2000), tmp_path / "cuts")
    with job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.epoch >= 2)
        [key] = [key for key in keys_of(server) if key.endswith(":row:counted")]
        with server.client() as client:
            assert client.hlen(key) == NUM_RECORDS
    # Also of one that is cancelled nothing stays.
    assert keys_of(server) == [STRANGER]


@pytest.mark.parametrize(
    ("password", "said"),
    [("wrong", f"with the password of {PASSWORD_VARIABLE}"), ("", "without a password")],
)
def test_what_the_server_refuses_fails_the_job_with_what_to_do(
    password, said, server, tmp_path, monkeypatch
):
    monkeypatch.setenv(PASSWORD_VARIABLE, password)
    status = ThreadJob(spec_of(server), tmp_path / "cuts").run()
    assert status.phase is JobPhase.FAILED
    assert f"refuses its default user {said} (" in status.message
    assert f"set {PASSWORD_VARIABLE}, and name the user" in status.message


def test_a_server_that_was_never_there_fails_the_job_before_it_begins(server, tmp_path):
    server.kill()
    status = ThreadJob(spec_of(server, embedding_redis_patience=0.1), tmp_path / "cuts").run()
    assert (status.phase, status.reason) == (JobPhase.FAILED, "JobSpec")
    assert f"127.0.0.1:{server.address.port}" in status.message
    assert "--embedding_redis_url" in status.message


def test_a_row_that_somebody_removes_fails_the_job_and_is_named(server, tmp_path, monkeypatch):
    # What the master remembers of rows, it writes again.
    monkeypatch.setattr(cached, "CACHE_BYTES", 0)
    job = ThreadJob(spec_of(server, num_epochs=2000), tmp_path / "cuts")
    with job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.epoch >= 1)
        with server.client() as client:
            [key] = [key for key in keys_of(server) if key.endswith(":row:counted")]

            def is_missed(statuses):
                # An update that has read it before writes all of it again.
                client.hdel(key, f"{7:016x}")
                return statuses[-1].phase.is_final

            job.wait_until(is_missed)
        status = job.wait()
    assert status.phase is JobPhase.FAILED
    assert "id 7 of table 'counted'" in status.message


def test_a_server_that_is_full_fails_the_job(server, tmp_path):
    job = ThreadJob(spec_of(server, num_epochs=2000), tmp_path / "cuts")
    with job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.epoch >= 1)
        with server.client() as client:
            client.config_set("maxmemory", "1mb")
        status = job.wait()
    assert status.phase is JobPhase.FAILED
    assert "has no room" in status.message


def test_a_server_that_comes_back_costs_no_update(server, tmp_path):
    job = ThreadJob(spec_of(server, num_epochs=40), tmp_path / "cuts")
    with job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.epoch >= 1)
        server.kill()
        server.start()
        status = job.wait()
    assert status.phase is JobPhase.SUCCEEDED, status
    assert not [event for event in status.events if event.kind == "ParametersLost"]
    cut = read_cut(Path(status.checkpoint))
    check_counts(cut, NUM_RECORDS, 40)
    assert np.isfinite(cut.parameters["parts.0"]).all()


def test_a_server_that_comes_back_older_costs_no_update(server, tmp_path):
    """As where it loses, with its machine, what was not on the disk yet."""
    job = ThreadJob(spec_of(server, num_epochs=60), tmp_path / "cuts")

    def wait_for_updates(num_updates):
        begun = job.runner.statuses[-1].progress.model_version if job.runner.statuses else 0
        job.wait_until(
            lambda statuses: statuses and statuses[-1].progress.model_version >= begun + num_updates
        )

    with job:
        for older in ("first", "second"):
            wait_for_updates(1)
            server.kill()
            server.keep_disk(tmp_path / older)
            server.start()
            wait_for_updates(5)
            server.kill()
            server.have_disk(tmp_path / older)
            server.start()
        status = job.wait()
    assert status.phase is JobPhase.SUCCEEDED, status
    assert not events(status, "ParametersLost")
    check_counts(read_cut(Path(status.checkpoint)), NUM_RECORDS, 60)


def test_a_server_that_loses_its_disk_costs_no_life_of_the_master(server, tmp_path):
    """Also where the job evaluates, and so has the model compute before it begins."""
    data = str(prepared_dir("counting", num_records=NUM_RECORDS) / "train.npz")
    job = ThreadJob(spec_of(server, num_epochs=40, evaluation_data_dir=data), tmp_path / "cuts")
    with job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.epoch >= 1)
        server.kill()
        server.lose_disk()
        server.start()
        status = job.wait()
    assert status.phase is JobPhase.SUCCEEDED, status
    assert [event for event in status.events if event.kind == "ParametersLost"]
    check_counts(read_cut(Path(status.checkpoint)), NUM_RECORDS, 40)


def newest_version(folder):
    return max(map(version_of, list_cuts(folder)), default=0)


def test_a_server_that_loses_its_disk_after_three_cuts_costs_one_of_them(server, tmp_path):
    """Each cut has the rows: in the files of those before it, and what has changed since."""
    spec, cuts = spec_of(server, num_epochs=60, recovery_interval=0.05), tmp_path / "cuts"
    seen = set()

    def has_three(_):
        seen.add(newest_version(cuts))
        return len(seen - {0}) >= 3

    with ThreadJob(spec, cuts) as job:
        job.wait_until(has_three)
        reached = newest_version(cuts)
        server.kill()
        server.lose_disk()
        server.start()
        status = job.wait()
    assert status.phase is JobPhase.SUCCEEDED, status
    (told,) = events(status, "Resumed")
    assert int(re.search(r"\(version (\d+)\)", told)[1]) >= reached > 0
    assert not events(status, "CheckpointDamaged")
    check_counts(read_cut(Path(status.checkpoint)), NUM_RECORDS, 60)


def test_a_job_goes_on_in_memory_from_the_newest_cut_of_one_with_a_server(server, tmp_path):
    spec, cuts = spec_of(server, num_epochs=2000, recovery_interval=0.1), tmp_path / "cuts"
    with ThreadJob(spec, cuts) as job:
        job.wait_until(lambda _: newest_version(cuts) > 0)
    reached = newest_version(cuts)
    epochs = reached // (NUM_RECORDS // 8) + 2
    settings = {"embedding_store": "memory", "embedding_redis_url": "", "resume": True}
    again = spec.model_copy(update={**settings, "num_epochs": epochs})
    status = ThreadJob(again, cuts).run()
    assert status.phase is JobPhase.SUCCEEDED, status
    (told,) = events(status, "Resumed")
    assert told.endswith(f"(version {reached})")
    check_counts(read_cut(Path(status.checkpoint)), NUM_RECORDS, epochs)


@pytest.mark.parametrize("has_disk", [True, False])
def test_a_server_of_a_cluster_that_dies_costs_no_record(has_disk, cluster, tmp_path):
    first, lost, _ = cluster.servers
    job = ThreadJob(spec_of(first, num_epochs=20, num_workers="2"), tmp_path / "cuts")
    with job:
        job.wait_until(lambda statuses: statuses and statuses[-1].progress.epoch >= 1)
        assert all(server.ask("KEYS", "*:row:counted") for server in cluster.servers)
        lost.kill()
        if not has_disk:
            lost.lose_disk()
        lost.start()
        status = job.wait()
    assert status.phase is JobPhase.SUCCEEDED, status
    goes_back = [event for event in status.events if event.kind == "ParametersLost"]
    assert bool(goes_back) is not has_disk
    check_counts(read_cut(Path(status.checkpoint)), NUM_RECORDS, 20)
    assert [server.ask("DBSIZE") for server in cluster.servers] == [0, 0, 0]
