"""The throw-away servers and the wire: what the other tests stand on."""

from __future__ import annotations

import hashlib
import io
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pg_server
import psycopg
import pytest
import urllib3
from minio import Minio
from minio.error import S3Error
from own_process import HOST, private_folder
from pg_shared import SharedDatabase
from psycopg_pool import ConnectionPool, PoolTimeout
from tcp_proxy import Traffic, Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    import s3_server

BUCKET = "crow-test"
HERE = Path(__file__).parent


# --- PostgreSQL -------------------------------------------------------------


@pytest.mark.parametrize("number", range(3))
def test_own_database_is_always_fresh(pg_fresh: str, number: int) -> None:
    with psycopg.connect(pg_fresh) as connection:
        connection.execute("create table crow (id bigint generated always as identity, body text)")
        assert connection.execute("insert into crow (body) values ('x') returning id").fetchone() == (1,)


def test_url_of_a_socket_server_names_folder_and_port(pg_fresh: str, pg_base: pg_server.Server) -> None:
    if not pg_base.host.startswith("/"):
        pytest.skip("CROWMEM_TEST_POSTGRES names a server on TCP")
    folder = pg_base.host.replace("/", "%2F")
    assert pg_fresh.startswith("postgresql://postgres@/crowmem_test_")
    assert pg_fresh.endswith(f"?host={folder}&port={pg_base.port}")


def test_url_quotes_what_a_url_cannot_hold() -> None:
    server = pg_server.Server("db.example", 5433, "o'crow@x", password="p:w/?#", options="-c a=b")
    url = server.url("a b")
    assert url == "postgresql://o%27crow%40x:p%3Aw%2F%3F%23@db.example:5433/a%20b?options=-c%20a%3Db"
    assert pg_server.from_dsn(url) == pg_server.Server(
        "db.example", 5433, "o'crow@x", password="p:w/?#", options="-c a=b", maintenance_dbname="a b"
    )


def test_contrib_unicode_and_notify(pg_fresh: str) -> None:
    with psycopg.connect(pg_fresh, autocommit=True) as one, psycopg.connect(pg_fresh, autocommit=True) as two:
        assert one.execute("select lower('ÉÑ')").fetchone() == ("éñ",)
        one.execute("listen caw")
        two.execute("select pg_notify('caw', 'hello')")
        heard = [note.payload for note in one.notifies(timeout=30, stop_after=1)]
    assert heard == ["hello"]


@pytest.mark.postgres
def test_a_server_keeps_its_data_over_stop_crash_and_restart() -> None:
    with pg_server.running(tcp=True) as server:
        over_tcp = server.url(host=HOST)
        with psycopg.connect(over_tcp, autocommit=True) as connection:
            connection.execute("create table crow as select 1 as id")
        for mode in ("fast", "immediate"):
            server.stop(mode)
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(server.url())
            server.start()
            with psycopg.connect(over_tcp) as connection:
                assert connection.execute("select id from crow").fetchall() == [(1,)]


@pytest.mark.postgres
def test_settings_reach_the_server() -> None:
    with pg_server.running({**pg_server.DURABLE, "work_mem": "5MB"}) as server, psycopg.connect(server.url()) as one:
        assert one.execute("select current_setting('fsync'), current_setting('work_mem')").fetchone() == ("on", "5MB")


@pytest.mark.postgres
def test_a_bad_setting_is_told_with_the_log() -> None:
    with pytest.raises(pg_server.NoPostgresError, match="no_such_setting"), pg_server.running({"no_such_setting": "1"}):
        pytest.fail("it started")


def test_a_named_folder_without_programs_is_an_error_and_no_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROWMEM_TEST_PG_BIN", "/nonexistent")
    with pytest.raises(pg_server.NoPostgresError, match="/nonexistent"):
        pg_server.find_bin()


@pytest.mark.postgres
def test_a_killed_test_run_leaves_no_server() -> None:
    script = """if True:
        import os, signal, pg_server
        with pg_server.running() as server:
            print(server.host, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    """
    ended = subprocess.run([sys.executable, "-c", script], cwd=HERE, capture_output=True, text=True, check=False)
    host = ended.stdout.strip()
    assert host, ended.stderr
    limit = time.monotonic() + 60
    while _answers(host):
        assert time.monotonic() < limit, f"a server still answers in {host}"
        time.sleep(0.02)
    with pg_server.running():
        assert not Path(host).exists(), "the next run sweeps up"


def _answers(host: str) -> bool:
    try:
        psycopg.connect(host=host, user="postgres", dbname="postgres").close()
    except psycopg.OperationalError:
        return False
    return True


def test_a_folder_in_use_is_not_swept(tmp_path: Path) -> None:
    place = tmp_path / "servers"
    place.mkdir()
    with private_folder("crowx-", place) as first, private_folder("crowx-", place) as second:
        assert first.is_dir()
        assert second.is_dir()
        left = place / "crowx-left"
        left.mkdir()
        (left / "lock").touch()
        with private_folder("crowx-", place):
            assert not left.exists()
            assert first.is_dir()
    assert list(place.iterdir()) == []


# --- the shared database ----------------------------------------------------


def crow_schema(url: str) -> None:
    """Stands for the store: a table with a first row, a child table, and a trigger that counts."""
    with psycopg.connect(url) as connection:
        connection.execute("create table step (number int generated always as identity primary key, name text)")
        connection.execute("insert into step (name) values ('0001')")
        connection.execute(
            "create table crow (id bigserial primary key, step int references step, half int generated always as (id / 2) stored)"
        )
        connection.execute(
            "create function count_crow() returns trigger language plpgsql as"
            " $$ begin update step set name = name || '!'; return null; end $$"
        )
        connection.execute("create trigger counts after insert or delete on crow execute function count_crow()")


@pytest.fixture
def shared(pg_fresh: str) -> SharedDatabase:
    return SharedDatabase(pg_fresh, crow_schema)


def rows(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute("select number, name, (select count(*) from crow) from step").fetchall()


def test_cleaning_brings_back_the_first_rows_and_numbers(shared: SharedDatabase) -> None:
    for _ in range(3):
        url = shared.clean()
        assert rows(url) == [(1, "0001", 0)]
        with psycopg.connect(url) as connection:
            assert connection.execute("insert into crow (step) values (1) returning id").fetchone() == (1,)
            assert connection.execute("insert into step (name) values ('x') returning number").fetchone() == (2,)


@pytest.mark.parametrize(
    "change",
    [
        "drop table crow",
        "alter table crow add column colour text",
        "drop trigger counts on crow",
        "create table stray (id int)",
        "create or replace function count_crow() returns trigger language plpgsql as $$ begin return null; end $$",
    ],
)
def test_cleaning_undoes_a_changed_schema(shared: SharedDatabase, change: str) -> None:
    with psycopg.connect(shared.clean()) as connection:
        connection.execute(change)
    url = shared.clean()
    assert rows(url) == [(1, "0001", 0)]
    with psycopg.connect(url) as connection:
        connection.execute("insert into crow (step) values (1)")
        assert connection.execute("select name from step").fetchone() == ("0001!",)
        assert connection.execute("select to_regclass('stray')").fetchone() == (None,)


def test_cleaning_cuts_a_bloated_database_to_nothing(shared: SharedDatabase) -> None:
    with psycopg.connect(shared.clean()) as connection:
        connection.execute("insert into crow (step) select 1 from generate_series(1, 100000)")
    url = shared.clean()
    assert rows(url) == [(1, "0001", 0)]
    with psycopg.connect(url) as connection:
        assert connection.execute("select pg_total_relation_size('crow') < 65536").fetchone() == (True,)


# --- the wire ---------------------------------------------------------------


@contextmanager
def upper_server() -> Iterator[tuple[str, int]]:
    """Answers each message in capitals; ``quit`` closes."""
    with socket.create_server((HOST, 0)) as listener:

        def serve(one: socket.socket) -> None:
            with one, suppress(ConnectionResetError):
                while (data := one.recv(1 << 16)) and data != b"quit":
                    one.sendall(data.upper())

        def accept() -> None:
            while True:
                try:
                    one, _ = listener.accept()
                except OSError:  # closed by the test's end
                    return
                threading.Thread(target=serve, args=(one,), daemon=True).start()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield listener.getsockname()
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def wire() -> Iterator[Wire]:
    with upper_server() as target, Wire(target) as one:
        yield one


def dial(wire: Wire) -> socket.socket:
    return socket.create_connection((wire.host, wire.port), timeout=30)


def ask(one: socket.socket, message: bytes) -> bytes:
    one.sendall(message)
    return one.recv(100)


def is_silent(one: socket.socket) -> bool:
    one.settimeout(0.2)
    try:
        one.recv(100)
    except TimeoutError:
        return True
    finally:
        one.settimeout(30)
    return False


def test_the_meter_counts_trips_bytes_and_connections(wire: Wire) -> None:
    with dial(wire) as one:
        assert ask(one, b"abc") == b"ABC"
        before = wire.traffic
        assert ask(one, b"de") == b"DE"
        assert ask(one, b"fgh") == b"FGH"
        assert wire.traffic - before == Traffic(0, 2, 5, 5)
    with dial(wire) as two:
        assert ask(two, b"i") == b"I"
    assert wire.traffic == Traffic(2, 4, 9, 9)


def test_a_partition_holds_bytes_back_and_healing_delivers_them(wire: Wire) -> None:
    with dial(wire) as one:
        assert ask(one, b"a") == b"A"
        wire.cut("hang")
        one.sendall(b"b")
        assert is_silent(one)
        with dial(wire) as late:  # a new connection waits too
            late.sendall(b"c")
            assert is_silent(late)
            wire.heal()
            assert one.recv(100) == b"B"
            assert late.recv(100) == b"C"


def test_a_muted_server_hears_and_its_answer_comes_after_healing(wire: Wire) -> None:
    with dial(wire) as one:
        assert ask(one, b"a") == b"A"
        wire.cut("mute")
        before = wire.traffic
        one.sendall(b"b")
        assert is_silent(one)
        assert wire.traffic - before == Traffic(0, 1, 1, 0)
        wire.heal()
        assert one.recv(100) == b"B"


def test_a_lost_answer_breaks_the_connection_after_the_server_heard(wire: Wire) -> None:
    with dial(wire) as one, dial(wire) as other:
        assert ask(one, b"a") == b"A"
        assert ask(other, b"o") == b"O"
        wire.cut("lose")
        before = wire.traffic
        with pytest.raises(ConnectionResetError):
            ask(one, b"b")
        assert wire.traffic - before == Traffic(0, 1, 1, 0)
        wire.heal()
        assert ask(other, b"p") == b"P", "a connection that asked nothing in between lives on"


def test_a_reset_reaches_an_idle_client_at_once(wire: Wire) -> None:
    with dial(wire) as one:
        assert ask(one, b"a") == b"A"
        wire.cut("reset")
        with pytest.raises(ConnectionResetError):
            one.recv(100)
        with pytest.raises(ConnectionResetError), dial(wire) as two:
            two.recv(100)
        wire.heal()
        with dial(wire) as three:
            assert ask(three, b"c") == b"C"


def test_refused_and_listening_again_at_the_same_port(wire: Wire) -> None:
    port = wire.port
    for _ in range(3):
        wire.cut("refuse")
        with pytest.raises(ConnectionRefusedError):
            dial(wire)
        wire.heal()
        assert wire.port == port
        with dial(wire) as one:
            assert ask(one, b"a") == b"A"


def test_a_server_that_hangs_up_is_passed_on(wire: Wire) -> None:
    with dial(wire) as one:
        assert ask(one, b"quit") == b""


def test_a_dead_server_resets_the_client() -> None:
    with upper_server() as target:
        pass
    with Wire(target) as wire, pytest.raises(ConnectionResetError), dial(wire) as one:
        one.recv(100)


def test_large_messages_pass_whole_through_slow_ends() -> None:
    data = os.urandom(20_000_000)

    def send() -> None:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)

    with socket.create_server((HOST, 0)) as listener, Wire(listener.getsockname()) as wire, dial(wire) as near:
        far, _ = listener.accept()
        with far:
            sender = threading.Thread(target=send)
            sender.start()
            digest = hashlib.sha256()
            while part := far.recv(1000):
                digest.update(part)
            sender.join()
            assert digest.digest() == hashlib.sha256(data).digest()
            far.sendall(b"thanks")  # the other direction is still open
            far.shutdown(socket.SHUT_WR)
            assert near.recv(100) == b"thanks"
            assert near.recv(100) == b""
        assert wire.traffic == Traffic(1, 1, len(data), 6)


def test_one_statement_is_one_round_trip(pg_fresh: str, pg_base: pg_server.Server) -> None:
    with Wire(pg_base.address) as wire:
        name = psycopg.conninfo.conninfo_to_dict(pg_fresh)["dbname"]
        url = pg_base.url(str(name), host=wire.host, port=wire.port)
        with psycopg.connect(url, autocommit=True) as connection:
            before = wire.traffic
            connection.execute("select %s::int + 1", [1], prepare=True)
            cost = wire.traffic - before
            assert cost.round_trips == 2, "preparing is a trip of its own"
            before = wire.traffic
            assert connection.execute("select %s::int + 1", [2]).fetchone() == (3,)
            cost = wire.traffic - before
    assert cost.round_trips == 1
    assert 0 < cost.to_client_bytes < 200


def test_a_pool_gives_up_on_a_broken_wire_and_comes_back(pg_fresh: str, pg_base: pg_server.Server) -> None:
    with Wire(pg_base.address) as wire:
        url = pg_base.url("postgres", host=wire.host, port=wire.port) + "?connect_timeout=2"
        with ConnectionPool(url, min_size=1, max_size=2, timeout=1, reconnect_timeout=2, open=False) as pool:
            assert _ask_pool(pool) == (1,)
            wire.cut("reset")
            with pytest.raises((psycopg.OperationalError, PoolTimeout)):
                _ask_pool(pool)
            wire.heal()
            for _ in range(30):
                try:
                    assert _ask_pool(pool) == (1,)
                    return
                except (psycopg.OperationalError, PoolTimeout):
                    continue
            pytest.fail("the pool never came back")


def _ask_pool(pool: ConnectionPool) -> tuple[object, ...] | None:
    with pool.connection() as connection:
        return connection.execute("select 1").fetchone()


# --- S3 ---------------------------------------------------------------------


@pytest.fixture(scope="session")
def s3(s3_base: s3_server.S3Server) -> Minio:
    client = s3_client(s3_base)
    if not client.bucket_exists(BUCKET):
        client.make_bucket(BUCKET)
    client.put_object(BUCKET, "first", io.BytesIO(b"x"), 1)  # a bucket's first write makes its volumes
    return client


def s3_client(
    where: s3_server.S3Server, secret: str | None = None, endpoint: str | None = None, read_s: float = 30
) -> Minio:
    return Minio(
        endpoint or where.endpoint,
        where.access_key,
        secret or where.secret_key,
        secure=where.secure,
        region=where.region,
        http_client=urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=2, read=read_s), retries=urllib3.Retry(total=1, read=0), maxsize=4
        ),
    )


def test_a_blob_comes_back_whole(s3: Minio) -> None:
    data = os.urandom(100_000)
    key = f"{hashlib.sha256(data).hexdigest()}.png"
    s3.put_object(BUCKET, key, io.BytesIO(data), len(data), content_type="image/png")
    assert s3.stat_object(BUCKET, key).content_type == "image/png"
    answer = s3.get_object(BUCKET, key)
    try:
        assert answer.read() == data
    finally:
        answer.close()
        answer.release_conn()


def test_wrong_secret_and_missing_bucket_are_told_apart(s3: Minio, s3_base: s3_server.S3Server) -> None:
    with pytest.raises(S3Error) as wrong:
        s3_client(s3_base, secret="wrong").get_object(BUCKET, "k")
    assert wrong.value.code == "SignatureDoesNotMatch"
    with pytest.raises(S3Error) as missing:
        s3.put_object("no-such-bucket", "k", io.BytesIO(b"x"), 1)
    assert missing.value.code == "NoSuchBucket"


def test_a_silent_and_a_refusing_s3(s3: Minio, s3_base: s3_server.S3Server) -> None:
    with Wire(s3_base.address) as wire:
        client = s3_client(s3_base, endpoint=f"{wire.host}:{wire.port}", read_s=1)
        assert client.bucket_exists(BUCKET)
        wire.cut("hang")
        with pytest.raises(urllib3.exceptions.MaxRetryError) as silent:
            client.stat_object(BUCKET, "k")
        assert isinstance(silent.value.reason, urllib3.exceptions.ReadTimeoutError)
        wire.cut("refuse")
        with pytest.raises(urllib3.exceptions.MaxRetryError) as refused:
            client.stat_object(BUCKET, "k")
        assert isinstance(refused.value.reason, urllib3.exceptions.NewConnectionError)
        wire.heal()
        assert client.bucket_exists(BUCKET)
