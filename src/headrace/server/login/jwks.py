# SPDX-License-Identifier: Apache-2.0
"""Readers of an issuer's keys (JSON Web Key Set): from a file, or from an https address."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from headrace import certificate_faults

SIZE_MAX = 256 << 10  # The maximum bytes of a set of keys, or of an issuer's metadata.
TIMEOUT_S = 5.0
DISCOVERY = "/.well-known/openid-configuration"


def make_loader(source: str, ca: Path | None = None) -> Callable[[], Awaitable[bytes]]:
    """Return a function that reads a set of keys from a file or an https address, on a thread.

    The certificate of the host is verified against the authorities of ``ca``, or the system's. A
    redirect, or any status other than 200, is a failure.

    Raises:
        ValueError: the address is not https, or malformed.
    """
    if "://" not in source:
        path = Path(source)
        return lambda: asyncio.to_thread(read_file, path)
    address = parse_address(source)
    return lambda: asyncio.to_thread(_fetch, address, ca)


def make_discovery_loader(issuer: str, ca: Path | None = None) -> Callable[[], Awaitable[bytes]]:
    """Return a function that reads an issuer's set of keys by OpenID Connect Discovery.

    It makes both requests as :func:`make_loader` does. The issuer's document must contain exactly
    the configured issuer, and the https address of its keys.

    Raises:
        ValueError: the issuer is not an https address.
    """
    address = parse_address(issuer.rstrip("/") + DISCOVERY)

    def fetch() -> bytes:
        try:
            document = json.loads(_fetch(address, ca))
            document_issuer, keys = document["issuer"], document["jwks_uri"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{address.host} does not name the address of its keys: {error}"
            ) from None
        if document_issuer != issuer:
            raise ValueError(f"{address.host} names the issuer {document_issuer!r}, not {issuer!r}")
        return _fetch(parse_address(str(keys)), ca)

    return lambda: asyncio.to_thread(fetch)


class HttpsAddress(NamedTuple):
    """The parts of an https address that a request uses."""

    host: str
    port: int
    path: str


def parse_address(address: str) -> HttpsAddress:
    """Parse an https address.

    Raises:
        ValueError: the text is not an https address, or contains a user.
    """
    parts = urlsplit(address)
    if parts.scheme != "https" or not parts.hostname or parts.username is not None:
        raise ValueError(f"{address!r} is neither a file nor an https address")
    query = f"?{parts.query}" if parts.query else ""
    return HttpsAddress(parts.hostname, parts.port or 443, (parts.path or "/") + query)


def read_file(path: Path, size_max: int = SIZE_MAX) -> bytes:
    """Return the contents of a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file has more than ``size_max`` bytes.
    """
    with path.open("rb") as file:
        return _check_size(file.read(size_max + 1), size_max)


def _fetch(address: HttpsAddress, ca: Path | None) -> bytes:
    import http.client  # Its import takes 5% of a start, which brokers without an issuer save.

    host, port, path = address
    context = ssl.create_default_context(cafile=ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=context)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        # A response of HTTP 1.0 owns the socket, so it must be closed, too.
        with connection.getresponse() as answer:
            if answer.status != http.HTTPStatus.OK:
                raise ValueError(f"{host} answers with status {answer.status}")
            return _check_size(answer.read(SIZE_MAX + 1))
    except http.client.HTTPException as error:
        raise ValueError(f"{host} does not speak HTTP: {type(error).__name__}") from None
    except ssl.SSLCertVerificationError as error:
        raise certificate_faults.describe_fault(error, host) from None
    finally:
        connection.close()


def _check_size(data: bytes, size_max: int = SIZE_MAX) -> bytes:
    if len(data) > size_max:
        raise ValueError(f"it has more than {size_max} bytes")
    return data
