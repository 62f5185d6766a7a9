"""A store in a Redis that dies, is full, is somebody else's too, or is no place for rows at all."""

import numpy as np
import pytest
from support.redis_servers import PASSWORD, WRITES_AT_ONCE, redis_server
from support.row_store_contract import FORMS, TABLE, make, noted, numbers, rows_of, scanned

from elastic.errors import TrainingError, UserError
from elastic.rows.base import RowMissingError, RowsLostError, Table, TableForm
from elastic.rows.redis.link import RedisLink
from elastic.rows.redis.store import RedisRows
from elastic.spec.values import RedisAddress

PREFIX = "elastic:{job/run}"
PATIENCE_S = 0.5


@pytest.fixture
def server(tmp_path):
    with redis_server(tmp_path / "redis", *WRITES_AT_ONCE) as server:
        yield server


@pytest.fixture
def opened(server):
    """Opens stores of one job, as one life of its master after the other does."""
    stores = []

    def open_store(patience_s=PATIENCE_S, forms=FORMS, address=None):
        link = RedisLink(lambda: address or server.address, patience_s)
        store = RedisRows(link, "job", "run")
        stores.append(store)
        store.open(forms)
        return store

    yield open_store
    for store in stores:
        store.close()


@pytest.fixture
def store(opened):
    return opened()


@pytest.fixture
def stranger(server):
    with server.client() as client:
        yield client


def field(id_):
    """Where the row of an id stands."""
    return f"{id_:016x}"


class TestRestartedMaster:
    """What one process has left is there for the next."""

    def test_finds_rows_and_goes_on(self, store, opened):
        make(store, deep=rows_of([1, -5], 1))
        other = opened()
        assert (other.version, other.num_rows("deep")) == (1, 2)
        make(other, deep=rows_of([1], 2))
        assert numbers(other, [-5, 1, 2]) == [1, 2, None]

    def test_finds_the_notes_of_rows_and_removes_them(self, store, opened):
        make(store, deep=rows_of([1, 2, -5], 1))
        make(store, deep=rows_of([1], 2, removed=[-5]))
        store.hold(2)
        other = opened()
        assert noted(other) == {1: 2, 2: 1}
        make(other, deep=rows_of([3], 3, removed=[1]))
        assert scanned(other, 2) == {1: 2, 2: 1}
        again = opened()
        assert scanned(again, 2) == {1: 2, 2: 1}
        assert again.go_back(2)
        assert noted(again) == {1: 2, 2: 1}

    def test_goes_back_to_what_the_last_one_held(self, store, opened):
        make(store, deep=rows_of([1, 2], 1))
        store.hold(1)
        make(store, deep=rows_of([2, 3], 2))
        store.hold(2)
        make(store, deep=rows_of([1, 4], 3))
        other = opened()
        assert scanned(other, 1) == {1: 1, 2: 1}
        make(other, deep=rows_of([2, 5], 4))
        assert scanned(other, 1) == {1: 1, 2: 1}
        assert other.go_back(1)
        assert (other.version, other.num_rows("deep")) == (1, 2)
        assert numbers(other, [1, 2, 3, 4, 5]) == [1, 1, None, None, None]

    def test_lets_go_of_what_the_last_one_held(self, store, opened, stranger):
        store.hold(0)
        store.hold(0)
        make(store, deep=rows_of([1], 1))
        other = opened()
        other.let_go(0)
        with pytest.raises(KeyError):
            other.read("deep", np.asarray([1]), 0)
        assert not stranger.keys(f"{PREFIX}:undo:*")

    def test_shuts_out_the_one_before(self, store, opened):
        make(store, deep=rows_of([1], 1))
        store.hold(1)
        other = opened()
        assert other.go_back(1)
        with pytest.raises(RowsLostError):
            make(store, deep=rows_of([1], 9))
        assert numbers(other, [1]) == [1]

    def test_begins_anew_where_a_load_was_cut_short(self, store, opened):
        def parts():
            yield rows_of(range(100), 1)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            store.load(7, {"deep": parts()})
        other = opened()
        assert (other.version, other.num_rows("deep")) == (0, 0)
        assert not other.go_back(7)

    def test_must_have_the_same_tables(self, store, opened):
        wider = TableForm(Table("deep", 4, "uniform(0.05)"), ("moment",))
        with pytest.raises(UserError, match="other tables"):
            opened(forms=[wider])


def test_rows_that_are_read_before_the_first_commit_are_none_although_it_is_made_since(
    store, monkeypatch
):
    """As where another thread commits between the server's answer and a look at it."""
    call = store._link.call

    def call_and_commit(work):
        answer = call(work)
        monkeypatch.undo()
        make(store, deep=rows_of([1], 5))
        return answer

    monkeypatch.setattr(store._link, "call", call_and_commit)
    assert numbers(store, [1]) == [None]
    assert numbers(store, [1]) == [5]


class TestServerThatDies:
    def test_comes_back_with_all_that_was_answered(self, server, opened):
        store = opened(patience_s=30)
        make(store, deep=rows_of([1, 2], 1))
        store.hold(1)
        make(store, deep=rows_of([2, 3], 2))
        server.kill()
        server.start()
        assert numbers(store, [1, 2, 3]) == [1, 2, 2]
        make(store, deep=rows_of([3], 3))
        assert store.go_back(1)
        assert numbers(store, [1, 2, 3]) == [1, 1, None]

    def test_without_its_disk_it_has_lost_them(self, server, opened):
        store = opened(patience_s=30)
        make(store, deep=rows_of([1], 1))
        store.hold(1)
        server.kill()
        server.lose_disk()
        server.start()
        with pytest.raises(RowsLostError, match="has nothing of the job"):
            store.read("deep", np.asarray([1]))
        # Of what is kept for the held version, and where there is nothing to keep.
        with pytest.raises(RowsLostError, match="has nothing of the job"):
            make(store, deep=rows_of([1], 2))
        with pytest.raises(RowsLostError, match="no version"):
            make(store, wide=rows_of([1], 2, 1))
        assert not store.go_back(1)
        store.load(1, {"deep": [rows_of([1], 1)]})
        make(store, deep=rows_of([2], 2))
        assert numbers(store, [1, 2]) == [1, 2]

    @pytest.mark.parametrize("first", ["read", "commit", "read of what is held", "hold"])
    def test_with_an_older_disk_it_makes_again_what_it_has_lost(
        self, first, server, opened, tmp_path
    ):
        store = opened(patience_s=30)
        make(store, deep=rows_of([1, 2, 5], 1))
        store.hold(1)
        make(store, deep=rows_of([2, 3], 2, removed=[5]))
        server.kill()
        server.keep_disk(tmp_path / "older")
        server.start()
        store.hold(2)
        make(store, deep=rows_of([3, 4], 3), wide=rows_of([7], 3, 1))
        store.let_go(1)
        make(store, deep=rows_of([1], 4, removed=[4]))
        server.kill()
        server.have_disk(tmp_path / "older")
        server.start()
        match first:
            case "read":
                assert numbers(store, [1, 2, 3, 4, 5]) == [4, 2, 3, None, None]
            case "commit":
                make(store, deep=rows_of([8], 5))
            case "read of what is held":
                assert scanned(store, 2) == {1: 1, 2: 2, 3: 2}
            case "hold":
                store.hold(4)
        assert numbers(store, [1, 2, 3, 4, 5]) == [4, 2, 3, None, None]
        assert store.read("wide", np.asarray([7])).is_there.all()
        assert scanned(store, 2) == {1: 1, 2: 2, 3: 2}
        # The next life of the master finds what this one had, and goes back to what it held.
        other = opened(patience_s=30)
        assert other.version == (5 if first == "commit" else 4)
        assert list(other.held) == ([2, 4] if first == "hold" else [2])
        assert other.go_back(2)
        assert numbers(other, [1, 2, 3, 4, 5]) == [1, 2, 2, None, None]

    def test_that_dies_again_while_it_makes_them_goes_on_with_them(self, server, opened, tmp_path):
        store = opened(patience_s=30)
        make(store, deep=rows_of([1], 1))
        server.kill()
        server.keep_disk(tmp_path / "older")
        server.start()
        for version in range(2, 8):
            make(store, deep=rows_of([1, version], version))
        server.kill()
        server.have_disk(tmp_path / "older")
        server.start()
        [part] = store._parts
        attempt, tries = part._try_once, []

        def die_at_third(client, *others):
            tries.append(others)
            seen = attempt(client, *others)
            if len(tries) == 3:
                server.kill()
                server.start()
                raise ConnectionResetError
            return seen

        part._try_once = die_at_third
        assert numbers(store, [1, *range(2, 8)]) == [7, *range(2, 8)]
        assert len(tries) == 6
        assert opened(patience_s=30).version == 7

    def test_with_a_disk_that_is_older_than_what_is_kept_it_is_at_another_version(
        self, server, opened, tmp_path, monkeypatch
    ):
        monkeypatch.setattr("elastic.rows.redis.store.KEPT_BYTES", 4 * 8 * TABLE.width)
        store = opened(patience_s=30)
        make(store, deep=rows_of([1], 1))
        server.kill()
        server.keep_disk(tmp_path / "older")
        server.start()
        for version in range(2, 30):
            make(store, deep=rows_of([1], version))
        server.kill()
        server.have_disk(tmp_path / "older")
        server.start()
        with pytest.raises(RowsLostError, match="version 1"):
            store.read("deep", np.asarray([1]))
        with pytest.raises(RowsLostError, match="version 1"):
            make(store, wide=rows_of([1], 30, 1))

    def test_that_somebody_else_has_written_to_makes_nothing_again(
        self, server, opened, tmp_path, stranger
    ):
        store = opened(patience_s=30)
        make(store, deep=rows_of([1], 1))
        server.kill()
        server.keep_disk(tmp_path / "older")
        server.start()
        make(store, deep=rows_of([1], 2))
        server.kill()
        server.have_disk(tmp_path / "older")
        server.start()
        other = opened(patience_s=30)
        make(other, deep=rows_of([1], 9))
        with pytest.raises(RowsLostError, match="version 2, by process"):
            make(store, deep=rows_of([1], 3))
        assert numbers(other, [1]) == [9]

    def test_nothing_of_before_a_load_is_made_again(self, server, opened, tmp_path):
        store = opened(patience_s=30)
        make(store, deep=rows_of([1], 1))
        server.kill()
        server.keep_disk(tmp_path / "older")
        server.start()
        make(store, deep=rows_of([1], 2))
        store.load(2, {"deep": [rows_of([4], 7)]})
        make(store, deep=rows_of([1], 3))
        server.kill()
        server.have_disk(tmp_path / "older")
        server.start()
        with pytest.raises(RowsLostError, match="version 1"):
            store.read("deep", np.asarray([1]))

    def test_is_found_where_it_is_started_again(self, server, tmp_path):
        addresses = [server.address]
        store = RedisRows(RedisLink(lambda: addresses[-1], 30), "job", "run")
        store.open(FORMS)
        make(store, deep=rows_of([1], 1))
        server.keep_disk(tmp_path / "elsewhere")
        with redis_server(tmp_path / "elsewhere", *WRITES_AT_ONCE) as other:
            addresses.append(other.address)
            make(store, deep=rows_of([1], 2))
            server.kill()
            assert numbers(store, [1]) == [2]
            store.close()

    def test_is_given_up_when_patience_ends(self, server, store):
        make(store, deep=rows_of([1], 1))
        server.kill()
        with pytest.raises(RowsLostError, match=r"has not answered for 0\.5 s"):
            store.read("deep", np.asarray([1]))
        with pytest.raises(RowsLostError):
            make(store, deep=rows_of([1], 2))
        server.start()
        store._link.patience_s = 30.0
        assert (store.version, numbers(store, [1])) == (1, [1])

    def test_that_hangs_is_given_up_too(self, server, store):
        server.pause()
        with pytest.raises(RowsLostError):
            make(store, deep=rows_of([1], 1))
        server.resume()

    def test_a_commit_whose_answer_was_lost_is_made_once(self, store, monkeypatch):
        """The connection breaks between the server's act and its answer."""
        make(store, deep=rows_of([1], 1))
        store.hold(1)
        [part] = store._parts
        attempt, answers = part._try_to_write, [ConnectionResetError]

        def lose_first_answer(*args, **kwargs):
            attempt(*args, **kwargs)
            if answers:
                raise answers.pop()

        monkeypatch.setattr(part, "_try_to_write", lose_first_answer)
        make(store, deep=rows_of([1, 2], 2))
        assert not answers
        assert (store.version, numbers(store, [1, 2])) == (2, [2, 2])
        assert scanned(store, 1) == {1: 1}
        assert store.go_back(1)
        assert numbers(store, [1, 2]) == [1, None]

    def test_a_connection_that_breaks_in_a_transaction_is_opened_again(self, store, stranger):
        make(store, deep=rows_of([1], 1))
        breaks = [lambda: stranger.client_kill_filter(_type="normal", skipme=True)]

        def fill(pipe):
            if breaks:
                breaks.pop()()
            pipe.execute_command("HSET", f"{PREFIX}:row:deep", field(1), bytes(4 * TABLE.width))

        [part] = store._parts
        part._write(part._stamp, fill)
        assert not breaks
        assert numbers(store, [1]) == [0]


class TestStrangers:
    """Somebody else writes to the server."""

    def test_a_row_that_was_removed_is_missed_and_named(self, store, stranger):
        make(store, deep=rows_of([1, 77], 1))
        stranger.hdel(f"{PREFIX}:row:deep", field(77))
        with pytest.raises(RowMissingError, match=r"id 77 of table 'deep' .*1 of 2 rows"):
            store.read("deep", np.asarray([1, 77]))
        store.hold(1)
        with pytest.raises(RowMissingError, match="id 77"):
            make(store, deep=rows_of([77], 2))

    def test_a_version_that_another_let_go_is_not_read_any_more(self, store, opened):
        """What the newest has would be taken for it."""
        store.hold(0)
        other = opened()
        make(other, deep=rows_of([1], 1))
        other.let_go(0)
        with pytest.raises(KeyError):
            store.read("deep", np.asarray([1]), 0)

    def test_a_table_that_was_removed_is_missed(self, store, stranger):
        make(store, deep=rows_of([1], 1))
        stranger.delete(f"{PREFIX}:row:deep")
        with pytest.raises(RowMissingError):
            store.read("deep", np.asarray([1]))

    def test_a_row_of_another_size_is_refused(self, store, stranger):
        make(store, deep=rows_of([1], 1))
        stranger.hset(f"{PREFIX}:row:deep", field(1), "short")
        with pytest.raises(TrainingError, match=f"not {TABLE.width} numbers"):
            store.read("deep", np.asarray([1]))

    def test_a_foreign_key_is_named(self, opened, stranger):
        stranger.set(f"{PREFIX}:notes", "mine")
        with pytest.raises(UserError, match=r"elastic:\{job/run\}:notes"):
            opened()

    def test_a_key_of_another_type_is_named(self, opened, stranger):
        stranger.set(f"{PREFIX}:row:deep", "mine")
        with pytest.raises(UserError, match=r"row:deep \(a string\)"):
            opened()

    def test_a_field_that_is_no_id_is_named(self, opened, stranger):
        stranger.hset(f"{PREFIX}:row:deep", "five", "mine")
        with pytest.raises(UserError, match="five"):
            opened()

    def test_a_type_that_changed_since_is_told(self, store, stranger):
        stranger.set(f"{PREFIX}:row:deep", "mine")
        with pytest.raises(TrainingError, match="WRONGTYPE"):
            make(store, deep=rows_of([1], 1))

    def test_two_masters_do_not_make_one_version_twice(self, store, opened):
        other = opened()
        make(store, deep=rows_of([1], 1))
        with pytest.raises(RowsLostError):
            make(other, deep=rows_of([1], 2))
        assert numbers(store, [1]) == [1]

    def test_other_jobs_are_left_alone(self, store, stranger):
        stranger.set("elastic:{job/run2}:row:deep", "theirs")
        make(store, deep=rows_of([1], 1))
        store.erase()
        assert stranger.keys("*") == ["elastic:{job/run2}:row:deep"]


class TestServersThatDoNotDo:
    """Each is refused with what to do about it."""

    def test_a_wrong_password(self, server, opened):
        with pytest.raises(UserError, match="ELASTIC_REDIS_PASSWORD"):
            opened(address=RedisAddress("127.0.0.1", server.address.port, password="wrong"))

    def test_no_password(self, server, opened):
        with pytest.raises(UserError, match="ELASTIC_REDIS_PASSWORD"):
            opened(address=RedisAddress("127.0.0.1", server.address.port))

    def test_a_user_that_may_not(self, server, opened, stranger):
        stranger.acl_setuser(
            "reader",
            enabled=True,
            passwords=["+pw"],
            keys=["*"],
            categories=["+@read", "+@connection"],
            commands=["+info"],
        )
        address = RedisAddress("127.0.0.1", server.address.port, "reader", "pw")
        with pytest.raises(UserError, match="forbids user 'reader'"):
            opened(address=address)

    def test_one_with_the_rights_that_the_message_names(self, server, opened, stranger):
        stranger.execute_command(
            "ACL", "SETUSER", "rows", "on", ">pw", "~elastic:*", "+@all", "-@dangerous", "+info"
        )
        store = opened(address=RedisAddress("127.0.0.1", server.address.port, "rows", "pw"))
        make(store, deep=rows_of([1], 1))
        store.hold(1)
        make(store, deep=rows_of([1], 2))
        assert store.go_back(1)
        store.erase()

    def test_nobody_there(self, opened):
        with pytest.raises(RowsLostError):
            opened(address=RedisAddress("127.0.0.1", 1))

    def test_one_that_evicts(self, opened, stranger):
        stranger.config_set("maxmemory", "100mb")
        stranger.config_set("maxmemory-policy", "allkeys-lru")
        with pytest.raises(UserError, match=r"allkeys-lru.*noeviction"):
            opened()

    def test_a_full_one_loses_nothing(self, store, stranger):
        make(store, deep=rows_of(range(1000), 1))
        store.hold(1)
        stranger.config_set("maxmemory", "1mb")
        with pytest.raises(TrainingError, match=r"no room .* of maxmemory 1.00M are used"):
            make(store, deep=rows_of(range(2000), 2))
        assert (store.version, store.num_rows("deep")) == (1, 1000)
        stranger.config_set("maxmemory", "0")
        store.let_go(1)
        make(store, deep=rows_of(range(2000), 2))
        assert numbers(store, [0, 1999]) == [2, 2]

    def test_a_copy_that_cannot_be_written_to(self, opened, stranger):
        stranger.execute_command("REPLICAOF", "127.0.0.1", "1")
        with pytest.raises(UserError, match="is a copy"):
            opened()

    def test_the_password_is_in_no_message(self, server, opened):
        with pytest.raises(UserError) as refused:
            opened(address=RedisAddress("127.0.0.1", server.address.port, "nobody", PASSWORD))
        assert PASSWORD not in str(refused.value)
