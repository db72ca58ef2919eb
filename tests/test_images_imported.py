"""Real histories with images, imported: nothing is lost, on both databases, in a folder and in a bucket."""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING

import pytest
from data import shared_data, transcript_files

from crowmem import Memory
from crowmem.blobs import FileStore, MinioStore
from crowmem.ingest import import_paths

if TYPE_CHECKING:
    from pathlib import Path

WITH_IMAGES = (
    "anthropic-messages/pydantic-ai/image-base64-source.jsonl",
    "openai-chat/pydantic-ai/image-data-url.jsonl",
    "openai-chat/pydantic-ai/responses-api-image.jsonl",
    "claude-code/session-share/images-in-tool-results.jsonl",
    "claude-code/session-share/images-in-user-messages.jsonl",
    "codex-rollout/session-bridge/images-compacted-64b5e566.jsonl",
    "inspect-ai/log_images.json",
    "inspect-ai/log_images_tc.json",
    "other-cli-fixtures/codex/small.jsonl",
)


def views(memory: Memory, *, hydrate: bool) -> dict[str, list[str]]:
    """Every agent's messages as text."""
    return {
        agent.agent_id: [json.dumps(message) for message in memory.messages.load(agent.agent_id, hydrate=hydrate)]
        for agent in memory.agents.list()
    }


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    return str(tmp_path / "crow.db") if request.param == "sqlite" else request.getfixturevalue("pg_clean")


@pytest.fixture(params=["folder", "bucket"])
def images(request, tmp_path):
    if request.param == "folder":
        return FileStore(tmp_path / "images")
    server = request.getfixturevalue("s3_base")
    return MinioStore(server.endpoint, f"b-{secrets.token_hex(8)}", server.access_key, server.secret_key)


def test_the_samples_with_images_come_back_letter_for_letter(url, images):
    paths = [shared_data("transcripts", *name.split("/")) for name in WITH_IMAGES]
    with Memory.open(":memory:") as plain:  # has no image store: images stay in the messages
        before = import_paths(plain, paths)
        expected = views(plain, hydrate=False)
    with Memory.open(url, images=images) as memory:
        after = import_paths(memory, paths)
        assert after.messages_added == before.messages_added > 0
        assert views(memory, hydrate=True) == expected
        stored = "".join(line for view in views(memory, hydrate=False).values() for line in view)
        assert stored.count('"image_ref"') >= 5
        assert "iVBORw0KGgo" not in stored
        assert len(images.keys()) >= 4
        assert memory.images.collect(grace_s=0) == 0
        assert memory.check(deep=True) == []
        assert import_paths(memory, paths).messages_added == 0


def test_every_transcript_comes_back_letter_for_letter(tmp_path: Path):
    paths = transcript_files(
        "claude-code", "codex-rollout", "openai-chat", "anthropic-messages", "inspect-ai", "opencode"
    )
    with Memory.open(":memory:") as plain, Memory.open(tmp_path / "crow.db") as memory:
        import_paths(plain, paths)
        import_paths(memory, paths)
        assert views(memory, hydrate=True) == views(plain, hydrate=False)
        assert memory.check(deep=True) == []
