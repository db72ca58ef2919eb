"""Errors of the minio client and of what is below it, told as crowmem's own."""

from __future__ import annotations

from crowmem.errors import ConfigError, CrowmemError, InvalidValue, StoreFull, Unavailable

MISSING = {"NoSuchKey", "NoSuchBucket"}
BUCKET_THERE = {"BucketAlreadyOwnedByYou", "BucketAlreadyExists", "OperationAborted"}
DENIED = {"AccessDenied", "AllAccessDisabled", "AccountProblem"}

_UNKNOWN_USER = {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken"}
_CLOCK = {"RequestTimeTooSkewed", "RequestExpired"}
_FULL = {"QuotaExceeded", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage"}
_DAMAGED = {"BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch", "IncompleteBody", "RequestTimeout"}
_PASSING = {429, 500, 502, 503, 504}


def code_of(error: BaseException) -> str:
    """The S3 error code, or ""."""
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else ""


def status_of(error: BaseException) -> int:
    """The HTTP status behind a client's error, or 0."""
    found = getattr(getattr(error, "response", None), "status", None)
    for name in ("status_code", "_code"):
        found = found if found is not None else getattr(error, name, None)
    return found if isinstance(found, int) else 0


def is_passing(error: BaseException) -> bool:
    """Whether the same request may succeed in a moment: a refused or broken connection, a busy server, garbled bytes.

    A server that does not answer at all is not asked again: each attempt would wait the full time.
    """
    from urllib3 import exceptions

    reason = error.reason if isinstance(error, exceptions.MaxRetryError) else error
    if isinstance(reason, (exceptions.NewConnectionError, exceptions.ProtocolError)):
        return True
    return status_of(error) in _PASSING or code_of(error) in _DAMAGED


def s3_error(error: Exception, doing: str) -> CrowmemError:
    """The crowmem error for whatever a client raised.

    Args:
        error: what it raised; its text may hold a server's whole answer and is left to the cause.
        doing: the verb and the object's URL.
    """
    code, status = code_of(error), status_of(error)
    because = code or (f"HTTP {status}" if status else "")
    if code in _UNKNOWN_USER:
        return ConfigError(f"cannot {doing}: {code}; check image_store.s3.access_key and secret_key")
    if code in _CLOCK:
        return ConfigError(f"cannot {doing}: {code}; this machine's clock differs from the server's: set it")
    if code in DENIED:
        return ConfigError(
            f"cannot {doing}: {code}; the access key lacks the right: grant get, put, list and delete on it"
        )
    if code in _FULL or status == 507:
        return StoreFull(f"cannot {doing}: {because}; free some space or raise the quota, then try again")
    if code == "EntityTooLarge":
        return InvalidValue(f"cannot {doing}: {code}; scale the image down")
    if code in MISSING:
        return ConfigError(f"cannot {doing}: {code}; create the bucket, or grant the right to create it")
    if code in _DAMAGED or status >= 500 or status in (0, 429):
        return Unavailable(f"cannot {doing}: {because or _reason(error)}")
    return ConfigError(f"cannot {doing}: the server answered {because}; check endpoint, region and bucket")


def _reason(error: Exception) -> str:
    """What went wrong on the wire, in a word: refused, timed out, cut."""
    reason = getattr(error, "reason", None)
    return type(reason if isinstance(reason, Exception) else error).__name__
