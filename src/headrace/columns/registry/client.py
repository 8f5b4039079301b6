# SPDX-License-Identifier: Apache-2.0
"""A client of schema registries, for the requests of Confluent's API that reads and writes need.

Apicurio and Karapace serve the same paths. While a registry is unreachable or busy, a request is
repeated for up to `REQUEST_TIMEOUT_S`. A refused request is not repeated.
"""

from __future__ import annotations

import base64
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NoReturn
from urllib.parse import quote, urlsplit

from headrace import certificate_faults
from headrace.columns.errors import RegistryError

if TYPE_CHECKING:
    from headrace.columns.options.decode_options import RegistryAddress
    from headrace.untyped import Json

REQUEST_TIMEOUT_S: Final = 30.0  # The time limit of a request with all its attempts.
ANSWER_TIMEOUT_S: Final = 10.0  # The time limit of each read from the socket.
PAUSE_S: Final = 0.1  # The first pause between attempts; each further pause is twice as long.
PAUSE_S_MAX: Final = 2.0
ANSWER_BYTES_MAX: Final = 4 << 20
TEXT_MAX: Final = 200  # Characters of a registry's own message in an error.
ID_END: Final = 1 << 32  # Ids of schemas have four bytes.
NOT_FOUND: Final = 404
RETRYABLE_CODES: Final = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A reference of a schema: a name in its text, with the subject and version of the name."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A registered schema: its kind (`AVRO`, `PROTOBUF` or `JSON`), text and references."""

    kind: str
    text: str
    references: tuple[SchemaReference, ...] = ()


class Registry:
    """A client of one registry. Its methods raise RegistryError if there is no valid answer."""

    def __init__(
        self,
        address: RegistryAddress,
        wait: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.address = address
        self._wait = wait
        self._clock = clock
        self._open = urllib.request.build_opener(_NoRedirects).open

    def fetch_schema(self, schema_id: int) -> RegisteredSchema | None:
        """Return the schema with this id; None if the registry does not have it."""
        return self._request_schema(f"/schemas/ids/{schema_id}")

    def fetch_version(self, subject: str, version: int) -> RegisteredSchema | None:
        """Return the schema of a version of a subject; None if the registry does not have it."""
        return self._request_schema(f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def register(self, subject: str, text: str) -> int:
        """Register an Avro schema and return its id; a registered schema keeps its id.

        Raises:
            RegistryError: the schema is incompatible with the earlier schemas of its subject.
        """
        schema_id = self._request_id(f"/subjects/{quote(subject, safe='')}/versions", text)
        if schema_id is None:
            raise RegistryError(
                f"{self._describe_url('/subjects')}: {subject!r} cannot be registered"
            )
        return schema_id

    def find_id(self, subject: str, text: str) -> int | None:
        """Return the id of an Avro schema in a subject; None if the subject does not have it."""
        return self._request_id(f"/subjects/{quote(subject, safe='')}", text)

    def _request_id(self, path: str, text: str) -> int | None:
        answer = self._request("POST", path, {"schema": text, "schemaType": "AVRO"})
        if answer is None:
            return None
        schema_id = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(schema_id, int) or not 0 <= schema_id < ID_END:
            raise RegistryError(f"{self._describe_url(path)} answered with no id")
        return schema_id

    def _request_schema(self, path: str) -> RegisteredSchema | None:
        """Return the schema in the answer to a request; None for the status 404."""
        answer = self._request("GET", path)
        if answer is None:
            return None
        try:
            references = tuple(
                SchemaReference(str(entry["name"]), str(entry["subject"]), int(entry["version"]))
                for entry in answer.get("references") or ()
            )
            kind, text = answer.get("schemaType") or "AVRO", answer["schema"]
            if not isinstance(text, str) or not isinstance(kind, str):
                raise TypeError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RegistryError(f"{self._describe_url(path)} answered with no schema") from None
        return RegisteredSchema(kind.upper(), text, references)

    def _request(self, method: str, path: str, body: Json = None) -> Json:
        """Return the decoded answer; None for the status 404."""
        deadline_s = self._clock() + REQUEST_TIMEOUT_S
        pause_s = PAUSE_S
        while True:
            try:
                return self._request_once(method, path, body)
            except _RetryableError as error:
                if self._clock() + pause_s > deadline_s:
                    raise RegistryError(f"{self._describe_url(path)} {error}") from None
            self._wait(pause_s)
            pause_s = min(2 * pause_s, PAUSE_S_MAX)

    def _request_once(self, method: str, path: str, body: Json) -> Json:
        """Send a request once; raise _RetryableError if a repetition may succeed."""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        data = None
        if body is not None:
            data = json.dumps(body).encode()
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        if self.address.user:
            login = f"{self.address.user}:{self.address.password}".encode()
            headers["Authorization"] = "Basic " + base64.b64encode(login).decode()
        elif self.address.password:
            headers["Authorization"] = f"Bearer {self.address.password}"
        url = self.address.url.rstrip("/") + path
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310
        try:
            with self._open(request, timeout=ANSWER_TIMEOUT_S) as answer:
                data = answer.read(ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == NOT_FOUND:
                    return None
                self._raise_refusal(path, error)
        except (OSError, http.client.HTTPException) as error:
            certificate_error = certificate_faults.find_refusal(error)
            fault = str(getattr(error, "reason", None) or error)[:TEXT_MAX]
            if certificate_error is not None:
                certificate_fault = certificate_faults.fault_text(certificate_error)
                fault = f"its certificate is refused: {certificate_fault}"
            raise _RetryableError(f"cannot be asked: {fault}") from None
        if len(data) > ANSWER_BYTES_MAX:
            raise RegistryError(
                f"{self._describe_url(path)} is longer than {ANSWER_BYTES_MAX} bytes"
            )
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise RegistryError(f"{self._describe_url(path)} answered with no JSON") from None

    def _raise_refusal(self, path: str, error: urllib.error.HTTPError) -> NoReturn:
        """Raise the error for a status, with the registry's own message if it has one."""
        if error.code in RETRYABLE_CODES:
            raise _RetryableError(f"answers {error.code} {error.reason}")
        explanation = ""
        try:
            explanation = f": {str(json.loads(error.read(ANSWER_BYTES_MAX))['message'])[:TEXT_MAX]}"
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
            pass
        raise RegistryError(
            f"{self._describe_url(path)} answers {error.code} {error.reason}{explanation}"
        )

    def _describe_url(self, path: str) -> str:
        return f"schema registry {urlsplit(self.address.url).netloc}: {path}"


class _RetryableError(Exception):
    """A request failed and may succeed later."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A handler that refuses redirects, which would send the password to another host."""

    def redirect_request(self, *_: object) -> None:
        return None
