# SPDX-License-Identifier: Apache-2.0
"""A client of schema registries: the part of Confluent's API that reading and writing need.

Apicurio and Karapace serve the same paths. A registry that is away or busy is asked again for
`PATIENCE_S`; a refusal is an error at once.
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

PATIENCE_S: Final = 30.0  # The time limit of a request with all its attempts.
ANSWER_S: Final = 10.0  # The time limit of an answer's beginning, and of each further part.
PAUSE_S: Final = 0.1  # The pause after the first attempt, which doubles.
PAUSE_S_MAX: Final = 2.0
ANSWER_BYTES_MAX: Final = 4 << 20
TEXT_MAX: Final = 200  # Characters of a registry's own message in an error.
ID_END: Final = 1 << 32
NOT_FOUND: Final = 404
BUSY: Final = frozenset({429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference of a schema: the name that it uses, and what it stands for."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as it is registered: its kind (`AVRO`, `PROTOBUF`, `JSON`), text and references."""

    kind: str
    text: str
    references: tuple[Reference, ...] = ()


class Registry:
    """Requests to one registry. Each raises RegistryError without a valid answer."""

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

    def schema(self, number: int) -> Registered | None:
        """Return the schema with this id; None if the registry does not have it."""
        return self._fetch_schema(f"/schemas/ids/{number}")

    def version(self, subject: str, version: int) -> Registered | None:
        """Return a version of a subject; None if the registry does not have it."""
        return self._fetch_schema(f"/subjects/{quote(subject, safe='')}/versions/{version}")

    def register(self, subject: str, text: str) -> int:
        """Register a schema of Avro, and return its id; one that is registered keeps its id.

        RegistryError if the subject's rules of compatibility forbid it.
        """
        number = self._id(f"/subjects/{quote(subject, safe='')}/versions", text)
        if number is None:
            raise RegistryError(
                f"{self._describe_url('/subjects')}: {subject!r} cannot be registered"
            )
        return number

    def number(self, subject: str, text: str) -> int | None:
        """Return the id of an Avro schema in a subject; None if the subject does not have it."""
        return self._id(f"/subjects/{quote(subject, safe='')}", text)

    def _id(self, path: str, text: str) -> int | None:
        answer = self._ask("POST", path, {"schema": text, "schemaType": "AVRO"})
        if answer is None:
            return None
        number = answer.get("id") if isinstance(answer, dict) else None
        if not isinstance(number, int) or not 0 <= number < ID_END:
            raise RegistryError(f"{self._describe_url(path)} answered with no id")
        return number

    def _fetch_schema(self, path: str) -> Registered | None:
        answer = self._ask("GET", path)
        if answer is None:
            return None
        try:
            references = tuple(
                Reference(str(entry["name"]), str(entry["subject"]), int(entry["version"]))
                for entry in answer.get("references") or ()
            )
            kind, text = answer.get("schemaType") or "AVRO", answer["schema"]
            if not isinstance(text, str) or not isinstance(kind, str):
                raise TypeError
        except (AttributeError, KeyError, TypeError, ValueError):
            raise RegistryError(f"{self._describe_url(path)} answered with no schema") from None
        return Registered(kind.upper(), text, references)

    def _ask(self, method: str, path: str, body: Json = None) -> Json:
        """Return the answer as JSON; None if the registry does not have it."""
        deadline = self._clock() + PATIENCE_S
        pause = PAUSE_S
        while True:
            try:
                return self._ask_once(method, path, body)
            except _RetryableError as error:
                if self._clock() + pause > deadline:
                    raise RegistryError(f"{self._describe_url(path)} {error}") from None
            self._wait(pause)
            pause = min(2 * pause, PAUSE_S_MAX)

    def _ask_once(self, method: str, path: str, body: Json) -> Json:
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
            with self._open(request, timeout=ANSWER_S) as answer:
                octets = answer.read(ANSWER_BYTES_MAX + 1)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == NOT_FOUND:
                    return None
                self._raise_refusal(path, error)
        except (OSError, http.client.HTTPException) as error:
            refused = certificate_faults.of(error)
            why = str(getattr(error, "reason", None) or error)[:TEXT_MAX]
            if refused is not None:
                why = f"its certificate is refused: {certificate_faults.fault_text(refused)}"
            raise _RetryableError(f"cannot be asked: {why}") from None
        if len(octets) > ANSWER_BYTES_MAX:
            raise RegistryError(
                f"{self._describe_url(path)} is longer than {ANSWER_BYTES_MAX} bytes"
            )
        try:
            return json.loads(octets)
        except (ValueError, RecursionError):
            raise RegistryError(f"{self._describe_url(path)} answered with no JSON") from None

    def _raise_refusal(self, path: str, error: urllib.error.HTTPError) -> NoReturn:
        if error.code in BUSY:
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
    """The registry may answer if it is asked again."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would take the password to another host."""

    def redirect_request(self, *_: object) -> None:
        return None
