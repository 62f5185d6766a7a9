"""Rows that are spread over a Redis Cluster, some of whose servers die, move, or have no room."""

import random
import secrets
import threading

import numpy as np
import pytest
from redis.crc import key_slot
from support.local_jobs import eventually
from support.redis_servers import PASSWORD, redis_cluster
from support.row_store_contract import FORMS, make, numbers, rows_of, scanned

from elastic.errors import TrainingError, UserError
from elastic.rows.base import RowsLostError
from elastic.rows.redis.link import RedisLink
from elastic.rows.redis.store import NUM_PARTS, NUM_SLOTS, Cluster, RedisRows, tags
from elastic.spec.values import RedisAddress

PATIENCE_S = 30.0
IDS = range(200)
"""Some in each part."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """One for all tests, each of which is another job and leaves it whole."""
    with redis_cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def copied(tmp_path):
    with redis_cluster(tmp_path / "cluster", num_copies=3) as cluster:
        yield cluster


@pytest.fixture
def run_id():
    return secrets.token_hex(6)


@pytest.fixture
def opened(run_id):
    """Opens stores of one job, as one life of its master after the other does."""
    stores = []

    def open_store(cluster, patience_s=PATIENCE_S, address=None):
        link = RedisLink(lambda: address or cluster.servers[0].address, patience_s)
        store = RedisRows(link, "job", run_id)
        stores.append(store)
        store.open(FORMS)
        return store

    yield open_store
    for store in stores:
        store.close()


def fail_in_some(store, monkeypatch, rng):
    """Have the next commit end when some parts have made it, and others not."""

    def fail(*_):
        raise RowsLostError("it has ended")

    for part in rng.sample(store._parts, rng.randrange(1, NUM_PARTS)):
        monkeypatch.setattr(part, "commit", fail)
    with pytest.raises(RowsLostError, match="it has ended"):
        make(store, deep=rows_of(IDS, 9))
    monkeypatch.undo()


def test_parts_are_spread_over_all_slots_alike():
    slots = [key_slot(f"elastic:{{{tag}}}:version".encode()) for tag in tags("job/run")]
    assert [slot * NUM_PARTS // NUM_SLOTS for slot in slots] == list(range(NUM_PARTS))


def test_all_servers_have_rows_and_none_has_any_when_the_job_has_ended(cluster, opened, run_id):
    store = opened(cluster)
    store.hold(0)
    make(store, deep=rows_of(IDS, 1), wide=rows_of(IDS, 1, 1))
    counts = [len(server.ask("KEYS", f"*{run_id}*:row:deep")) for server in cluster.servers]
    # Two of the sixteen parts reach over the border of two servers, and are in either.
    assert sum(counts) == NUM_PARTS
    assert set(counts) <= {4, 5, 6}
    store.erase()
    assert not any(server.ask("KEYS", f"*{run_id}*") for server in cluster.servers)


class TestCommitThatEndsMidway:
    @pytest.mark.parametrize("seed", range(4))
    @pytest.mark.parametrize("is_restarted", [False, True])
    def test_is_undone_by_the_parts_that_have_made_it(
        self, seed, is_restarted, cluster, opened, monkeypatch
    ):
        rng = random.Random(seed)
        store = opened(cluster)
        make(store, deep=rows_of(range(0, 200, 2), 1))
        store.hold(1)
        make(store, deep=rows_of(range(100), 2, removed=[150]))
        fail_in_some(store, monkeypatch, rng)
        if is_restarted:
            store = opened(cluster)
        for use in (lambda: make(store), lambda: store.read("deep", np.asarray(IDS))):
            with pytest.raises(RowsLostError, match=r"some servers .* version 2, .* of 3"):
                use()
        assert store.go_back(1)
        assert store.version == 1
        expected = dict.fromkeys(range(0, 200, 2), 1.0)
        assert numbers(store, IDS) == [expected.get(id_) for id_ in IDS]
        make(store, deep=rows_of(IDS, 4))
        assert numbers(store, IDS) == [4] * 200
        assert scanned(store, 1) == expected

    def test_is_forgotten_by_a_load(self, cluster, opened, monkeypatch):
        store = opened(cluster)
        make(store, deep=rows_of(IDS, 1))
        fail_in_some(store, monkeypatch, random.Random(1))
        assert not store.go_back(1)
        store.load(1, {"deep": [rows_of([1, 2], 5)]})
        assert (store.version, numbers(store, [1, 2, 3])) == (1, [5, 5, None])

    def test_a_load_that_ends_midway_is_begun_again(self, cluster, opened, monkeypatch):
        store = opened(cluster)
        monkeypatch.setattr(store._parts[5], "end_load", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.load(7, {"deep": [rows_of(IDS, 1)]})
        other = opened(cluster)
        assert not other.go_back(7)
        other.load(7, {"deep": [rows_of(IDS, 1)]})
        assert (other.version, numbers(other, IDS)) == (7, [1] * 200)

    def test_a_return_that_ends_midway_is_made_again(self, cluster, opened, monkeypatch):
        store = opened(cluster)
        make(store, deep=rows_of(IDS, 1))
        store.hold(1)
        make(store, deep=rows_of(IDS, 2))
        monkeypatch.setattr(store._parts[5], "go_back", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            store.go_back(1)
        other = opened(cluster)
        assert other.go_back(1)
        assert numbers(other, IDS) == [1] * 200


class TestServerThatDies:
    def test_comes_back_in_the_middle_of_commits_and_none_is_lost_or_made_twice(
        self, cluster, opened
    ):
        store = opened(cluster)
        store.hold(0)
        is_done = threading.Event()

        def commit():
            while not is_done.is_set():
                make(store, deep=rows_of(IDS, store.version + 1))

        committing = threading.Thread(target=commit)
        committing.start()
        for server in cluster.servers[:2]:
            before = store.version
            eventually(lambda before=before: store.version > before + 2)
            server.kill()
            server.start()
        before = store.version
        eventually(lambda: store.version > before)
        is_done.set()
        committing.join()
        assert {part.version for part in store._parts} == {store.version}
        assert numbers(store, IDS) == [store.version] * 200
        assert scanned(store, 0) == {}

    def test_is_given_up_when_patience_ends_and_the_others_go_back(self, cluster, opened):
        store = opened(cluster, patience_s=0.3)
        make(store, deep=rows_of(IDS, 1))
        store.hold(1)
        cluster.servers[1].kill()
        with pytest.raises(RowsLostError, match=r"has not answered for 0\.3 s"):
            make(store, deep=rows_of(IDS, 2))
        cluster.servers[1].start()
        eventually(cluster.is_whole)
        assert store.go_back(1)
        assert numbers(store, IDS) == [1] * 200

    def test_without_its_disk_it_has_lost_its_part(self, cluster, opened):
        store = opened(cluster)
        make(store, deep=rows_of(IDS, 1))
        store.hold(1)
        cluster.servers[2].kill()
        cluster.servers[2].lose_disk()
        cluster.servers[2].start()
        with pytest.raises(RowsLostError, match="has nothing of the job any more"):
            store.read("deep", np.asarray(IDS))
        with pytest.raises(RowsLostError, match="has nothing of the job any more"):
            make(store, deep=rows_of(IDS, 2))
        assert not store.go_back(1)
        store.load(1, {"deep": [rows_of(IDS, 1)]})
        assert numbers(store, IDS) == [1] * 200

    def test_with_an_older_disk_it_makes_again_what_it_has_lost(self, cluster, opened, tmp_path):
        store, server = opened(cluster), cluster.servers[2]
        make(store, deep=rows_of(IDS, 1))
        store.hold(1)
        server.kill()
        server.keep_disk(tmp_path / "older")
        server.start()
        make(store, deep=rows_of(IDS[:100], 2))
        make(store, deep=rows_of(IDS[50:], 3))
        server.kill()
        server.have_disk(tmp_path / "older")
        server.start()
        assert numbers(store, IDS) == [2] * 50 + [3] * 150
        make(store, deep=rows_of(IDS[:1], 4))
        assert store.go_back(1)
        assert numbers(store, IDS) == [1] * 200

    def test_its_copy_is_found_in_its_place(self, copied, opened):
        store = opened(copied)
        make(store, deep=rows_of(IDS, 1))
        store.hold(1)
        lost = copied.servers[1]
        with lost.client() as client:
            client.wait(1, 10_000)
        lost.kill()
        make(store, deep=rows_of(IDS, 2))
        assert numbers(store, IDS) == [2] * 200
        assert store.go_back(1)
        assert numbers(store, IDS) == [1] * 200


class TestSlotThatMoves:
    @pytest.fixture
    def slot(self, run_id):
        return key_slot(tags(f"job/{run_id}")[0].encode())

    def test_is_found_where_it_is(self, cluster, slot, opened):
        store = opened(cluster)
        make(store, deep=rows_of(IDS, 1))
        cluster.end_move(slot, cluster.begin_to_move(slot))
        assert numbers(store, IDS) == [1] * 200
        make(store, deep=rows_of(IDS, 2))
        assert numbers(store, IDS) == [2] * 200

    def test_is_waited_for_while_it_moves(self, cluster, slot, opened, monkeypatch):
        forget, is_refused = Cluster._forget, threading.Event()

        def note_and_forget(cluster):
            is_refused.set()
            forget(cluster)

        monkeypatch.setattr(Cluster, "_forget", note_and_forget)
        store = opened(cluster)
        make(store, deep=rows_of(IDS, 1))
        # So that the next commit has a key that neither server has.
        store.hold(1)
        target = cluster.begin_to_move(slot)
        committing = threading.Thread(target=make, args=(store,), kwargs={"deep": rows_of(IDS, 2)})
        committing.start()
        assert is_refused.wait(PATIENCE_S)
        cluster.end_move(slot, target)
        committing.join()
        assert numbers(store, IDS) == [2] * 200
        assert scanned(store, 1) == dict.fromkeys(IDS, 1.0)


class TestClustersThatDoNotDo:
    def test_one_server_that_evicts(self, cluster, opened):
        server = cluster.servers[2]
        with server.client() as client:
            client.config_set("maxmemory", "100mb")
            client.config_set("maxmemory-policy", "allkeys-lru")
            with pytest.raises(UserError, match=rf":{server.address.port}/0 drops .*allkeys-lru"):
                opened(cluster)
            client.config_set("maxmemory", "0")

    def test_one_server_that_is_full(self, cluster, opened):
        store = opened(cluster)
        make(store, deep=rows_of(IDS, 1))
        store.hold(1)
        with cluster.servers[1].client() as client:
            client.config_set("maxmemory", "1mb")
            with pytest.raises(TrainingError, match="no room"):
                make(store, deep=rows_of(IDS, 2))
            client.config_set("maxmemory", "0")
        assert store.go_back(1)
        assert numbers(store, IDS) == [1] * 200

    def test_a_user_with_the_rights_that_the_message_names(self, cluster, opened):
        rights = ("on", ">pw", "~elastic:*", "+@all", "-@dangerous", "+info", "+cluster|slots")
        for server in cluster.servers:
            server.ask("ACL", "SETUSER", "rows", *rights)
        address = RedisAddress("127.0.0.1", cluster.servers[0].address.port, "rows", "pw")
        store = opened(cluster, address=address)
        store.hold(0)
        make(store, deep=rows_of(IDS, 1))
        assert store.go_back(0)
        store.erase()

    def test_a_wrong_password(self, cluster, opened):
        address = RedisAddress("127.0.0.1", cluster.servers[0].address.port, password="wrong")
        with pytest.raises(UserError, match="ELASTIC_REDIS_PASSWORD") as refused:
            opened(cluster, address=address)
        assert PASSWORD not in str(refused.value)

    def test_another_database(self, cluster, opened):
        address = RedisAddress("127.0.0.1", cluster.servers[0].address.port, "", PASSWORD, 2)
        with pytest.raises(
            TrainingError, match=r"2 does not do .*(DB index is out of range|SELECT is not allowed)"
        ):
            opened(cluster, address=address)
