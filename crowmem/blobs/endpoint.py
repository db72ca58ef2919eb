"""What an S3 server is asked through: its address, checked, and a minio client with short timeouts."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from crowmem.errors import ConfigError

if TYPE_CHECKING:
    from minio import Minio

CONNECTIONS = 16
HTTPS_PORT = 443
PIECE = 256 * 1024  # sent at once: at 64 kB a put of 200 kB took a sixth longer

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_SETTING = "image_store.s3."


def parse_endpoint(endpoint: Any) -> tuple[str, bool]:
    """Host and port as the minio client wants them, and whether TLS is used.

    Args:
        endpoint: ``http://host:port``, ``https://host`` or ``host:port``; without a scheme any port but 443 means http.

    Raises:
        ConfigError: anything else; credentials in it are not repeated.
    """
    if not isinstance(endpoint, str) or not endpoint.strip():
        raise ConfigError(f"{_SETTING}endpoint is empty, expected a URL such as http://127.0.0.1:9000")
    text = endpoint.strip()
    if "@" in text:
        raise ConfigError(f"{_SETTING}endpoint holds credentials: put them into access_key and secret_key")
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(
            f"{_SETTING}endpoint is no URL ({error}), expected one such as http://127.0.0.1:9000"
        ) from None
    if host is None or parts.scheme not in ("", "http", "https") or not re.fullmatch(r"[\w.:%-]+", host):
        raise ConfigError(f"{_SETTING}endpoint is {text!r}, expected a URL such as http://127.0.0.1:9000")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigError(
            f"{_SETTING}endpoint is {text!r}: only scheme, host and port go there, the bucket into bucket"
        )
    shown = f"[{host}]" if ":" in host else host
    secure = parts.scheme == "https" or (not parts.scheme and port in (None, HTTPS_PORT))
    return (shown if port is None else f"{shown}:{port}"), secure


def check_bucket(bucket: Any) -> str:
    """A bucket's name. Raises ConfigError."""
    if not isinstance(bucket, str) or not _BUCKET.fullmatch(bucket) or ".." in bucket:
        raise ConfigError(
            f"{_SETTING}bucket is {bucket!r}, expected 3 to 63 lower-case letters, digits, dots and hyphens"
        )
    return bucket


def check_credential(name: str, value: Any) -> str:
    """A key or region that can be signed with. Raises ConfigError, which does not show it."""
    if not isinstance(value, str) or not value or not value.isascii() or not value.isprintable():
        raise ConfigError(f"{_SETTING}{name} is empty or has characters that no S3 server takes: set it")
    return value


def make_client(
    host: str, secure: bool, access_key: str, secret_key: str, region: str, connect_s: float, read_s: float
) -> Minio:
    """A client that never waits long and never retries by itself: urllib3 would log each repeat.

    It sends in pieces: a socket's timeout is for all that one call sends, and a slow line needs longer for an image.
    """
    import certifi
    from minio import Minio
    from urllib3 import PoolManager
    from urllib3.util import Retry, Timeout

    class Pool(PoolManager):
        def urlopen(self, method: str, url: str, redirect: bool = True, **more: Any) -> Any:  # type: ignore[override]  # its own names 10 more
            body = more.get("body")
            if isinstance(body, bytes) and len(body) > PIECE:
                view = memoryview(body)
                more["body"] = [view[start : start + PIECE] for start in range(0, len(body), PIECE)]
            return super().urlopen(method, url, redirect, **more)

    pool = Pool(
        timeout=Timeout(connect=connect_s, read=read_s),
        maxsize=CONNECTIONS,
        retries=Retry(total=0, raise_on_redirect=False, raise_on_status=False, respect_retry_after_header=False),
        cert_reqs="CERT_REQUIRED",
        ca_certs=os.environ.get("SSL_CERT_FILE") or certifi.where(),
    )
    return Minio(host, access_key=access_key, secret_key=secret_key, region=region, secure=secure, http_client=pool)
