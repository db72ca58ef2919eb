"""`crowmem init`: three files, random passwords, and nothing overwritten unasked."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from crowmem.config import S3, load
from crowmem.errors import ConfigError
from crowmem.expansion import read_dotenv
from crowmem.setup import Answers, ask, compose_text, init

NAMES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD", "RUSTFS_ACCESS_KEY", "RUSTFS_SECRET_KEY"}


def replies(*lines: str):
    """An input() that gives these lines, then ends; it keeps what it was asked."""
    left = list(lines)

    def read(prompt: str) -> str:
        read.asked.append(prompt)
        if not left:
            raise EOFError
        return left.pop(0)

    read.asked = []
    return read


def test_a_new_folder_gets_three_files(tmp_path):
    folder = tmp_path / "deep" / "crow"
    assert init(folder) == {"config.yaml": "written", ".env": "written", "compose.yaml": "written"}
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / ".env").stat().st_mode & 0o777 == 0o600
    assert (folder / "config.yaml").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in folder.iterdir()) == [".env", "compose.yaml", "config.yaml"]
    found = load(folder)
    assert found.db_uri == str(folder / "crow.db")
    assert found.images_dir == folder / "images"
    assert found.image_store is None
    assert (folder / "compose.yaml").read_text() == compose_text()


def test_passwords_are_long_random_and_nowhere_else(tmp_path):
    seen = set()
    for number in range(3):
        folder = tmp_path / str(number)
        init(folder, answers=Answers("postgres", "s3"))
        values = read_dotenv(folder / ".env")
        assert set(values) == NAMES
        secret = [values["POSTGRES_PASSWORD"], values["RUSTFS_SECRET_KEY"]]
        assert all(len(one) >= 40 and one.isalnum() for one in secret)
        seen.update(secret)
        for name in ("config.yaml", "compose.yaml"):
            assert not [one for one in values.values() if len(one) > 8 and one in (folder / name).read_text()]
    assert len(seen) == 6


def test_with_servers_the_configuration_names_them(tmp_path, monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    init(tmp_path, answers=Answers("postgres", "s3"))
    env = read_dotenv(tmp_path / ".env")
    found = load(tmp_path)
    assert found.db_uri == f"postgresql://crow:{env['POSTGRES_PASSWORD']}@127.0.0.1:5432/crow"
    assert found.image_store == S3(
        "http://127.0.0.1:9000", "crow-images", env["RUSTFS_ACCESS_KEY"], env["RUSTFS_SECRET_KEY"]
    )
    assert env["POSTGRES_PASSWORD"] not in repr(found)


def test_nothing_is_overwritten_unasked(tmp_path):
    for name in ("config.yaml", "compose.yaml"):
        (tmp_path / name).write_text("# mine\n")
    (tmp_path / ".env").write_text("POSTGRES_PASSWORD=mine\nOTHER=x")
    assert init(tmp_path) == {"config.yaml": "kept", ".env": "completed", "compose.yaml": "kept"}
    assert (tmp_path / "config.yaml").read_text() == "# mine\n"
    assert (tmp_path / "compose.yaml").read_text() == "# mine\n"
    text = (tmp_path / ".env").read_text()
    assert text.startswith("POSTGRES_PASSWORD=mine\nOTHER=x\n")
    assert read_dotenv(tmp_path / ".env")["POSTGRES_PASSWORD"] == "mine"
    assert set(read_dotenv(tmp_path / ".env")) == {*NAMES, "OTHER"}
    assert (tmp_path / ".env").stat().st_mode & 0o777 == 0o600


def test_force_replaces_the_settings_and_never_the_passwords(tmp_path):
    init(tmp_path)
    before = (tmp_path / ".env").read_text()
    (tmp_path / "config.yaml").write_text("# mine\n")
    assert init(tmp_path, force=True) == {"config.yaml": "replaced", ".env": "kept", "compose.yaml": "replaced"}
    assert (tmp_path / ".env").read_text() == before
    assert "mine" not in (tmp_path / "config.yaml").read_text()


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "target").write_text("precious")
    (tmp_path / "crow").mkdir()
    (tmp_path / "crow" / "config.yaml").symlink_to(tmp_path / "target")
    (tmp_path / "crow" / "compose.yaml").symlink_to(tmp_path / "nowhere")
    assert init(tmp_path / "crow")["config.yaml"] == "kept"
    init(tmp_path / "crow", force=True)
    assert (tmp_path / "target").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_a_shared_dotenv_stays_shared(tmp_path):
    (tmp_path / "crow").mkdir()
    (tmp_path / "shared.env").write_text("OTHER=x\n")
    (tmp_path / "crow" / ".env").symlink_to(tmp_path / "shared.env")
    assert init(tmp_path / "crow")[".env"] == "completed"
    assert (tmp_path / "crow" / ".env").is_symlink()
    assert set(read_dotenv(tmp_path / "shared.env")) == {*NAMES, "OTHER"}


@pytest.mark.parametrize("name", ["it's", 'a "b"', "a: b", "#1", "a\\b", "ü", "100%", "- x"])
def test_whatever_the_folder_is_called(tmp_path, name):
    init(tmp_path / name)
    assert load(tmp_path / name).db_uri == str(tmp_path / name / "crow.db")
    assert load(tmp_path / name).images_dir == tmp_path / name / "images"


@pytest.mark.parametrize("name", ["${HOME}", "~no-such-user-here", ""])
def test_a_folder_that_cannot_be_named_in_the_settings(tmp_path, monkeypatch, name):
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with pytest.raises(ConfigError, match=r"^the folder is '"):
        init(name)
    assert list(here.iterdir()) == []


def test_a_file_in_the_way(tmp_path):
    (tmp_path / "crow").write_text("a file")
    with pytest.raises(ConfigError):
        init(tmp_path / "crow")


# --- questions ---


def test_empty_lines_take_the_defaults(tmp_path):
    read = replies("", "")
    assert ask(tmp_path, read) == Answers("sqlite", "folder")
    assert len(read.asked) == 2


def test_answers_may_be_short_and_a_wrong_one_is_asked_again(tmp_path):
    assert ask(tmp_path, replies("maybe", "P", " s3 ")) == Answers("postgres", "s3")


def test_what_exists_is_asked_about(tmp_path):
    for name in ("config.yaml", "compose.yaml"):
        (tmp_path / name).write_text("# mine\n")
    read = replies("", "", "yes", "")
    answers = ask(tmp_path, read)
    assert answers.replace == {"config.yaml"}
    assert str(tmp_path / "config.yaml") in read.asked[2]
    assert init(tmp_path, answers=answers) == {"config.yaml": "replaced", ".env": "written", "compose.yaml": "kept"}


def test_an_end_of_input_writes_nothing(tmp_path):
    with pytest.raises(ConfigError, match="--yes"):
        ask(tmp_path / "crow", replies(""))
    assert not (tmp_path / "crow").exists()


# --- compose.yaml ---


def test_the_compose_file_has_two_healthy_private_servers():
    compose = yaml.safe_load(compose_text())
    assert compose_text() == (Path(__file__).parents[1] / "compose.yaml").read_text()
    assert set(compose["services"]) == {"postgres", "rustfs"}
    assert compose["services"]["postgres"]["image"].startswith("postgres:17")
    assert compose["services"]["rustfs"]["image"].startswith("rustfs/rustfs:")
    for service in compose["services"].values():
        assert service["healthcheck"]["test"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        names = [mount.split(":")[0] for mount in service["volumes"]]
        assert all(name in compose["volumes"] for name in names)


def test_the_compose_file_holds_no_password_and_no_default_for_one():
    for service in yaml.safe_load(compose_text())["services"].values():
        for name, value in service["environment"].items():
            if any(word in name for word in ("PASSWORD", "SECRET", "ACCESS_KEY")):
                assert value == f"${{{name}}}"


def test_every_name_the_compose_file_needs_is_in_the_dotenv(tmp_path):
    import re

    init(tmp_path)
    needed = set(re.findall(r"(?<!\$)\$\{([A-Z_]+)\}", compose_text()))
    assert needed <= set(read_dotenv(tmp_path / ".env"))
    assert needed == {"POSTGRES_PASSWORD", "RUSTFS_ACCESS_KEY", "RUSTFS_SECRET_KEY"}
