# SPDX-License-Identifier: Apache-2.0
"""The calls of an object store that segments need, and the adapter for S3, GCS and Azure.

Credentials come from the environment variables that each store's tools use (``AWS_ACCESS_KEY_ID``,
``GOOGLE_APPLICATION_CREDENTIALS``, ``AZURE_STORAGE_ACCOUNT_KEY`` and so on). No error text has
credentials.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Protocol

from headrace import extras

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as Obstore

SCHEMES = ("s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "https", "http", "file")
TIMEOUT_S = 30  # Seconds of one request.
RETRY_S = 10  # Seconds for which one call repeats a failed request.


class ObjectStore(Protocol):
    """Objects by name. Each call raises OSError if the store does not answer, or refuses it."""

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write an object durably, replacing an existing one of that name."""

    def put_new(self, name: str, data: bytes) -> bool:
        """Write an object unless its name exists; return True if it was written."""

    def size(self, name: str) -> int:
        """Return the bytes of an object; -1 if there is none."""

    def read(self, name: str, start: int, end: int) -> bytes:
        """Return a range of an object, fewer bytes at its end.

        Raises:
            FileNotFoundError: no object has that name.
        """

    def names(self, prefix: str) -> list[str]:
        """Return the names of all objects below a prefix, which ends at a slash."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete objects; a missing one is not an error."""


class RemoteStore:
    """The object store of a URL, through the package obstore."""

    def __init__(self, url: str) -> None:
        """``url`` is ``s3://bucket/prefix``, ``gs://…``, ``az://…`` or ``file:///directory``.

        Raises:
            PackageMissing: obstore is not installed.
            ValueError: the URL names no store.
        """
        extras.require("obstore")
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError
        from obstore.store import from_url

        scheme = url.partition("://")[0]
        if scheme not in SCHEMES or "://" not in url:
            raise ValueError(f"{scheme} is not a scheme of an object store; try s3://bucket/prefix")
        self._calls = obstore
        self._exists = AlreadyExistsError
        self._missing = (NotFoundError, FileNotFoundError)
        self._errors = (BaseError, OSError)
        options: ClientConfig = {"timeout": timedelta(seconds=TIMEOUT_S), "allow_http": True}
        retries: RetryConfig = {"max_retries": 3, "retry_timeout": timedelta(seconds=RETRY_S)}
        try:
            if scheme == "file":
                self._store: Obstore = from_url(url, mkdir=True)
            else:
                self._store = from_url(url, client_options=options, retry_config=retries)
        except BaseError as error:
            raise ValueError(first_line(error)) from None
        #: The directory of a ``file`` URL, because obstore does not sync its files; else empty.
        self._directory = url.removeprefix("file://") if scheme == "file" else ""

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        try:
            self._calls.put(self._store, name, iter(chunks))
            if self._directory:
                self._sync(name)
        except self._errors as error:
            raise to_os_error(error) from None

    def _sync(self, name: str) -> None:
        path = os.path.join(self._directory, name)
        while len(path) > len(self._directory):
            handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
            path = os.path.dirname(path)

    def put_new(self, name: str, data: bytes) -> bool:
        try:
            self._calls.put(self._store, name, data, mode="create", use_multipart=False)
        except self._exists:
            return False
        except self._errors as error:
            raise to_os_error(error) from None
        return True

    def size(self, name: str) -> int:
        try:
            return self._calls.head(self._store, name)["size"]
        except self._missing:
            return -1
        except self._errors as error:
            raise to_os_error(error) from None

    def read(self, name: str, start: int, end: int) -> bytes:
        try:
            return bytes(self._calls.get_range(self._store, name, start=start, end=end))
        except self._missing as error:
            raise FileNotFoundError(errno.ENOENT, first_line(error)) from None
        except self._errors as error:
            raise to_os_error(error) from None

    def names(self, prefix: str) -> list[str]:
        try:
            pages = self._calls.list(self._store, prefix)
            return [entry["path"] for page in pages for entry in page]
        except self._errors as error:
            raise to_os_error(error) from None

    def delete(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._calls.delete(self._store, name)
            except self._missing:
                continue
            except self._errors as error:
                raise to_os_error(error) from None


def to_os_error(error: Exception) -> OSError:
    """Turn an error of obstore into an OSError."""
    return OSError(errno.EIO, first_line(error))


def first_line(error: Exception) -> str:
    """Return the first line of an error, without the details of its source."""
    return str(error).partition("\n")[0][:500]
