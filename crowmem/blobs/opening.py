"""Which image store an open database uses: the one it is given, or a configured one, or a folder beside it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crowmem.blobs import Store
from crowmem.blobs.files import FileStore
from crowmem.config import HOME
from crowmem.errors import ConfigError

if TYPE_CHECKING:
    from crowmem.config import Config
    from crowmem.urls import Target

FOLDER = "images"


def open_images(images: Any, config: Config, target: Target, read_only: bool) -> Store | None:
    """The image store of one open database.

    Args:
        images: a folder, a store, or None.
        config: says where, when ``images`` is None. A bucket is asked once, briefly, whether it is there.
        target: the database; one in memory has no image store unless it is given one, and images stay in its messages.
        read_only: nothing may be made, so a bucket is not asked before it is needed.

    Raises:
        ConfigError: ``images`` is neither, or the configured bucket cannot be right.
    """
    if isinstance(images, (str, os.PathLike)):
        return FileStore(images)
    if images is not None:
        if not isinstance(images, Store):
            raise ConfigError(f"images is a {type(images).__name__}, expected a folder or an image store")
        return images
    if target.dialect == "sqlite" and target.path is None:
        return None
    folder = FileStore(_folder(config, target))
    if config.image_store is None:
        return folder
    from crowmem.blobs.hybrid import HybridStore
    from crowmem.blobs.minio import MinioStore

    s3 = config.image_store
    store = HybridStore(MinioStore(s3.endpoint, s3.bucket, s3.access_key, s3.secret_key, s3.region), folder)
    if not read_only:
        store.probe()
    return store


def _folder(config: Config, target: Target) -> Path:
    if config.images_dir is not None:
        return config.images_dir
    if target.path is not None:
        return target.path.parent / FOLDER
    return (config.source.parent if config.source is not None else Path(HOME)) / FOLDER
