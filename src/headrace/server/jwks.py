# SPDX-License-Identifier: Apache-2.0
"""Where the keys of tokens come from: a file, or an https address."""

from __future__ import annotations

import asyncio
import http.client
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

SIZE_MAX = 256 << 10  # Octets of a set of keys.
TIMEOUT_S = 5.0


def loader(source: str, ca: Path | None = None) -> Callable[[], Awaitable[bytes]]:
    """Return what reads the set: on a thread, so that nobody waits for a slow host.

    Of an address the certificate is verified, against the authorities of ``ca`` or the system's; a
    redirect, or any status but 200, is a failure.

    Raises:
        ValueError: the address is not https, or malformed.
    """
    if "://" not in source:
        path = Path(source)
        return lambda: asyncio.to_thread(_read, path)
    parts = urlsplit(source)
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        raise ValueError(f"{source!r} is neither a file nor an https address")
    host, port = parts.hostname, parts.port or 443
    where = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return lambda: asyncio.to_thread(_fetch, host, port, where, ca)


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return _bounded(file.read(SIZE_MAX + 1))


def _fetch(host: str, port: int, path: str, ca: Path | None) -> bytes:
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise ValueError(f"{host} answers with status {answer.status}")
        return _bounded(answer.read(SIZE_MAX + 1))
    except http.client.HTTPException as error:
        raise ValueError(f"{host} does not speak HTTP: {type(error).__name__}") from None
    finally:
        connection.close()


def _bounded(octets: bytes) -> bytes:
    if len(octets) > SIZE_MAX:
        raise ValueError(f"a set of keys of more than {SIZE_MAX} octets")
    return octets
