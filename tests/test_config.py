"""config.yaml: exact, typed, and silent about passwords."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

import pytest

from crowmem.config import DEFAULT_STORE, S3, Config, load, normalize, resolve_url, safe_url
from crowmem.errors import ConfigError

SECRET = "hunter2-secret"


def config(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> Config:
    (tmp_path / "config.yaml").write_text(text, encoding="utf-8")
    return load(tmp_path, env or {})


def refusal(tmp_path: Path, text: str, env: dict[str, str] | None = None) -> str:
    """The message, after checking that neither it nor the traceback a user sees shows a secret."""
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, text, env)
    assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True)).split("/tests/")[-1]
    assert SECRET not in str(caught.value)
    assert str(tmp_path / "config.yaml") in str(caught.value)
    return str(caught.value)


# --- what it says ---


def test_every_setting(tmp_path):
    found = config(
        tmp_path,
        """
db_uri: postgresql://crow:${PASSWORD}@db.example/crow
images_dir: ~/pictures
durability: normal
pool_size: 20
max_attempts: 7
image_store:
  s3:
    endpoint: https://s3.example
    bucket: pictures
    access_key: ${USER_KEY}
    secret_key: ${PASSWORD}
    region: eu-central-1
""",
        {"PASSWORD": SECRET, "USER_KEY": "me"},
    )
    assert found == Config(
        db_uri=f"postgresql://crow:{SECRET}@db.example/crow",
        image_store=S3("https://s3.example", "pictures", "me", SECRET, "eu-central-1"),
        images_dir=Path("~/pictures").expanduser(),
        durability="normal",
        pool_size=20,
        max_attempts=7,
        source=tmp_path / "config.yaml",
    )
    assert SECRET not in repr(found)
    assert "me" not in repr(found.image_store).split("access")[-1]


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "{}", "\ufeff# with a mark\n"])
def test_an_empty_file_has_all_defaults(tmp_path, text):
    assert config(tmp_path, text) == Config(source=tmp_path / "config.yaml")


def test_the_example_is_valid():
    example = Path(__file__).parents[1] / "config.example.yaml"
    found = load(example, {})
    assert found == Config(
        db_uri="~/.agents/crow/crow.db",
        images_dir=Path("~/.agents/crow/images").expanduser(),
        source=example,
    )


def test_every_line_of_the_example_is_valid_when_it_is_used(tmp_path):
    """The commented lines too: the file is what people copy from."""
    example = (Path(__file__).parents[1] / "config.example.yaml").read_text(encoding="utf-8")
    text = example.split("# image_store:")[1].split("\n\n")[0]
    section = "image_store:" + "\n".join(line.removeprefix("# ") for line in text.splitlines())
    names = {"RUSTFS_ACCESS_KEY": "me", "RUSTFS_SECRET_KEY": SECRET}
    assert config(tmp_path, section, names).image_store == S3("http://127.0.0.1:9000", "crow-images", "me", SECRET)


def test_a_file_or_its_folder(tmp_path):
    config(tmp_path, "pool_size: 3")
    assert load(tmp_path, {}) == load(tmp_path / "config.yaml", {}) == load(str(tmp_path), {})


def test_home_expands_where_a_path_is_read(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "settings").mkdir()
    config(tmp_path / "settings", "images_dir: ~/pictures")
    assert load("~/settings", {}).images_dir == tmp_path / "pictures"


def test_a_relative_folder_is_beside_the_file(tmp_path):
    assert config(tmp_path, "images_dir: pictures").images_dir == tmp_path / "pictures"


def test_the_default_place_may_be_empty_a_named_one_may_not(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(None, {}) == Config()
    for missing in (tmp_path, tmp_path / "config.yaml", tmp_path / "no" / "such"):
        with pytest.raises(ConfigError, match="does not exist"):
            load(missing, {})
    folder = tmp_path / ".agents" / "crow"
    folder.mkdir(parents=True)
    config(folder, "pool_size: 4")
    assert load(None, {}).pool_size == 4


# --- the environment ---


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${NAME}", "value"),
        ("a${NAME}b${NAME}c", "avaluebvaluec"),
        ("${EMPTY}x", "x"),
        ("${NAME:-default}", "value"),
        ("${UNSET:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${UNSET:-}x", "x"),
        ("${UNSET:-a:-b}", "a:-b"),
        ("${UNSET:-$}", "$"),
        ("$", "$"),
        ("$$", "$$"),
        ("$NAME", "$NAME"),
        ("5$", "5$"),
        ("$ {NAME}", "$ {NAME}"),
        ("}{", "}{"),
        ("${TRICK}", "${NAME} $NAME ${UNSET}"),
    ],
)
def test_values_from_the_environment(tmp_path, text, value):
    env = {"NAME": "value", "EMPTY": "", "TRICK": "${NAME} $NAME ${UNSET}"}
    assert config(tmp_path, f"db_uri: '{text}'", env).db_uri == value


def test_what_is_inserted_is_not_read_as_yaml(tmp_path):
    env = {"NAME": f"x\npool_size: 99 # {SECRET}"}
    found = config(tmp_path, "db_uri: ${NAME}", env)
    assert found.pool_size == 10
    assert found.db_uri == env["NAME"]


def test_an_unset_name_is_an_error_that_names_it_and_its_place(tmp_path):
    text = refusal(tmp_path, "image_store: {s3: {endpoint: 'http://x', access_key: a, secret_key: '${MY_SECRET}'}}")
    assert "MY_SECRET" in text
    assert "image_store.s3.secret_key" in text


@pytest.mark.parametrize(
    "text", ["${", "${NAME", "${}", "${1x}", "${a b}", "${NAME-x}", "${NAME:x}", "${NAME:?x}", "${ NAME }"]
)
def test_braces_without_a_name_are_an_error(tmp_path, text):
    assert "db_uri" in refusal(tmp_path, f"db_uri: '{text}'", {"NAME": SECRET})


def test_numbers_come_from_the_environment_too(tmp_path):
    assert config(tmp_path, "pool_size: ${SIZE}", {"SIZE": "12"}).pool_size == 12
    assert "pool_size" in refusal(tmp_path, "pool_size: ${SIZE}", {"SIZE": "many"})


def test_the_dotenv_file_beside_it_is_read_and_the_environment_goes_before_it(tmp_path, monkeypatch):
    (tmp_path / ".env").write_text("# mine\nexport A=1\nB='two words'\nC = \"x\" \nD=plain # note\n\nbad line\nE=\n")
    (tmp_path / "config.yaml").write_text("db_uri: ${A}|${B}|${C}|${D}|${E:-e}\n")
    for name in "ABCDE":
        monkeypatch.delenv(name, raising=False)
    assert load(tmp_path).db_uri == "1|two words|x|plain|e"
    monkeypatch.setenv("A", "mine")
    assert load(tmp_path).db_uri == "mine|two words|x|plain|e"


# --- mistakes ---


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pool_sise: 3", ["pool_sise", "pool_size"]),
        ("db_url: x", ["db_url", "db_uri"]),
        ("nonsense: 3", ["nonsense", "db_uri"]),
        ("1: 3", ["1 is no setting"]),
        ("image_store: {S3: {}}", ["image_store.S3", "s3"]),
        ("image_store: {s3: {endpoint: x, acces_key: y}}", ["image_store.s3.acces_key", "access_key"]),
        ("image_store: 5", ["image_store is a number"]),
        ("image_store: {s3: yes}", ["image_store.s3 is yes or no"]),
        ("image_store: {s3: {bucket: x}}", ["image_store.s3.endpoint is missing"]),
        ("image_store: {s3: {endpoint: 'http://x', access_key: a}}", ["image_store.s3.secret_key is missing"]),
        ("- a\n- b", ["a list"]),
        ("just words", ["text"]),
        ("db_uri: 5", ["db_uri is a number", "quotes"]),
        ("db_uri: [a]", ["db_uri is a list"]),
        ("images_dir: ''", ["images_dir"]),
        ("images_dir: ~no-such-user-here/x", ["images_dir"]),
        ("durability: maximal", ["durability", "full, normal"]),
        ("pool_size: 0", ["pool_size is 0", "1 to 1,000"]),
        ("pool_size: 1001", ["pool_size"]),
        ("pool_size: 2.5", ["pool_size"]),
        ("pool_size: yes", ["pool_size"]),
        ("pool_size: '99999999999999999999'", ["pool_size"]),
        ("max_attempts: -1", ["max_attempts"]),
        ("pool_size: 1\npool_size: 2", ["line 2", "set twice"]),
        ("image_store: {s3: {endpoint: a, endpoint: b}}", ["endpoint is set twice"]),
        ("db_uri: 'open", ["not YAML"]),
        ("a: b: c", ["line 1", "not YAML"]),
        ("\tdb_uri: x", ["not YAML"]),
        ("db_uri: !!python/object/apply:os.system ['true']", ["not YAML"]),
        ("durability: 2026-13-45", ["quotes"]),
        ("pool_size: !!int many", ["quotes"]),
        (f"pool_size: {'9' * 5000}", ["quotes"]),
        ("[" * 5000, ["too deep"]),
        ("db_uri: ${A:-${B}}", ["${NAME:-default}"]),
    ],
)
def test_a_mistake_is_named_with_its_cure(tmp_path, text, words):
    message = refusal(tmp_path, text)
    for word in words:
        assert word in message


def test_credentials_in_an_endpoint_are_not_shown(tmp_path):
    for endpoint in (f"http://me:{SECRET}@host", f"me:{SECRET}@host", f"http://me:{SECRET}/x@host"):
        found = config(tmp_path, f"image_store: {{s3: {{endpoint: '{endpoint}', access_key: a, secret_key: b}}}}")
        assert SECRET not in repr(found)
        assert "***@host" in repr(found.image_store)


def test_a_broken_line_is_not_repeated(tmp_path):
    refusal(tmp_path, f"image_store:\n  s3:\n    secret_key: '{SECRET}\n")
    refusal(tmp_path, f"db_uri: postgresql://crow:{SECRET}@host: x: y\n")
    refusal(tmp_path, f"durability: full\ndb_uri: {{{SECRET}\n")


def test_a_file_that_cannot_be_read(tmp_path):
    (tmp_path / "config.yaml").write_bytes(b"db_uri: \xff\xfe")
    with pytest.raises(ConfigError, match="UTF-8"):
        load(tmp_path, {})
    (tmp_path / "folder" / "config.yaml").mkdir(parents=True)
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "folder", {})


def test_a_home_of_somebody_else_has_no_configuration(tmp_path, monkeypatch):
    """A service often runs with root's HOME; the paths cannot even be looked at."""
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    plain = Path.stat

    def denied(path, **more):
        if home in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, **more)

    monkeypatch.setattr(Path, "stat", denied)
    assert load(None, {}) == Config()
    with pytest.raises(ConfigError, match="Permission denied"):
        load(home / "crow", {})


def test_settings_of_crow_cli_in_the_same_file_are_left_alone(tmp_path):
    text = """
providers: {x: {api_key: '${NOT_OURS}'}}
models: {m: {provider: x}}
mcpServers: {}
some_setting_of_next_year: 5
db_uri: here.db
"""
    assert config(tmp_path, text).db_uri == "here.db"
    assert "pool_size" in refusal(tmp_path, text + "pool_sise: 3\n")


def test_an_empty_endpoint_means_no_bucket(tmp_path):
    text = "image_store: {s3: {endpoint: '${S3:-}', access_key: a, secret_key: b}}"
    assert config(tmp_path, text).image_store is None
    assert config(tmp_path, "image_store: {s3: }").image_store is None
    assert config(tmp_path, "image_store:").image_store is None
    assert config(tmp_path, text, {"S3": "http://x"}).image_store == S3("http://x", "crow-images", "a", "b")


# --- which store ---


def test_the_order_of_what_names_the_store():
    settings = Config(db_uri="config.db")
    assert resolve_url("argument.db", {"CROW_DB_URI": "env.db"}, settings) == "argument.db"
    assert resolve_url(Path("argument.db"), {}, settings) == "argument.db"
    assert resolve_url(None, {"CROW_DB_URI": "env.db"}, settings) == "env.db"
    assert resolve_url(None, {"CROW_DB_URI": ""}, settings) == "config.db"
    assert resolve_url(None, {}, settings) == "config.db"
    assert resolve_url(None, {}, Config()) == DEFAULT_STORE


@pytest.mark.parametrize(
    "name", ["crow.db", "a b", "50%", "a%20b", "what?", "#1", "ü", "a&b=c", "a@b", "semi;colon", "a:b"]
)
def test_a_path_is_a_path_whatever_letters_it_has(tmp_path, name):
    found = normalize(str(tmp_path / name))
    assert found.dialect == "sqlite"
    assert found.path == tmp_path / name
    assert found.name == str(tmp_path / name)
    assert not found.read_only
    again = normalize(found.uri)
    assert again == found
    read_only = normalize(f"{found.uri}?mode=ro")
    assert read_only.path == found.path
    assert read_only.read_only


def test_paths_and_uris_of_sqlite(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    here = tmp_path / "x.db"
    for url in (
        "x.db",
        "./x.db",
        "~/x.db",
        here,
        f"sqlite:///{here}",
        "sqlite:///x.db",
        "sqlite:///~/x.db",
        "sqlite+pysqlite:///x.db",
        f"file:{here}",
        f"file://{here}",
        f"sqlite:///file:{here}?uri=true",
        "a/../x.db",
    ):
        assert normalize(url).path == here, url
    for url in (f"file:{here}?mode=ro", f"sqlite:///file:{here}?mode=ro&uri=true", "sqlite:///x.db?mode=ro"):
        assert normalize(url).read_only, url
    for url in (":memory:", "sqlite://", "sqlite:///:memory:"):
        assert normalize(url).path is None
        assert normalize(url).name == ":memory:"


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg", "postgresql+asyncpg", "POSTGRESQL"])
def test_urls_of_postgresql(scheme):
    found = normalize(f"{scheme}://crow:{SECRET}@db.example:5433/crow?sslmode=require")
    assert found.dialect == "postgres"
    assert found.uri == f"postgresql://crow:{SECRET}@db.example:5433/crow?sslmode=require"
    assert found.path is None
    assert SECRET not in found.name
    assert SECRET not in repr(found)


@pytest.mark.parametrize(
    "rest", ["me%40work:a%40b%2Fc@db/crow%40x?application_name=a@b", "/crow?host=/tmp/a@b", "crow:a?b#c@db/crow", "db"]
)
def test_what_looks_like_a_password_with_an_at_sign_and_is_none(rest):
    assert normalize(f"postgresql://{rest}").uri == f"postgresql://{rest}"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "  ",
        "a\0b",
        f"mysql://crow:{SECRET}@host/db",
        f"host=db user=crow password={SECRET}",
        f"postgresql://crow:a@{SECRET}@db/crow",
        f"postgresql://crow:a@{SECRET}/b#c@db/crow?sslmode=require",
        f"postgresql://crow:{SECRET}/b@db/crow",
        f"postgresql:/crow:{SECRET}@db/crow",
        f"postgres:crow:{SECRET}@db/crow",
        "sqlite:///x.db?cache=shared",
        "~no-such-user-here/x.db",
    ],
)
def test_what_is_no_address_is_refused(url):
    with pytest.raises(ConfigError) as caught:
        normalize(url)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"postgresql://crow:{SECRET}@db/crow", "postgresql://crow:***@db/crow"),
        ("postgresql://crow@db/crow", "postgresql://crow@db/crow"),
        ("postgresql://db/crow", "postgresql://db/crow"),
        (f"postgresql://crow:{SECRET}@[::1]:5432/crow", "postgresql://crow:***@[::1]:5432/crow"),
        (f"postgresql://crow:a@{SECRET}@db/crow", "postgresql://crow:***@db/crow"),
        (f"postgresql://crow:a/{SECRET}@db/crow", "postgresql://crow:***@db/crow"),
        (f"postgresql://crow:a?{SECRET}@db/crow", "postgresql://crow:***@db/crow"),
        (f"postgresql://crow:a#{SECRET}@db/crow", "postgresql://crow:***@db/crow"),
        (f"postgresql://db/crow?user=crow&password={SECRET}", "postgresql://db/crow?user=crow&password=***"),
        (f"postgresql://db/crow?sslpassword={SECRET}&x=1", "postgresql://db/crow?sslpassword=***&x=1"),
        (f"https://me:{SECRET}@s3.example", "https://me:***@s3.example"),
        (f"host=db password={SECRET} user=crow", "host=db password=*** user=crow"),
        (f"host=db password='a b {SECRET}' user=crow", "host=db password=*** user=crow"),
        ("/home/me@work/crow.db", "/home/me@work/crow.db"),
        ("sqlite:////home/me:x@work/crow.db", "sqlite:////home/me:x@work/crow.db"),
        ("", ""),
    ],
)
def test_no_password_is_shown(url, shown):
    assert safe_url(url) == shown


def test_loading_needs_no_more_than_yaml():
    import subprocess
    import sys

    code = "import sys, crowmem.config; print([m for m in ('yaml', 'minio', 'psycopg', 'urllib3') if m in sys.modules])"
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "[]"
