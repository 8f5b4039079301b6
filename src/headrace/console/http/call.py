# SPDX-License-Identifier: Apache-2.0
"""One request as its handler sees it: parameters, body, user, and the broker as that user."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final, NoReturn

from headrace.console.auth.addresses import peer_of
from headrace.console.http.forms import FormError, parse
from headrace.console.http.limits import BODY_S
from headrace.console.http_errors import HttpError, bad_request
from headrace.exact_json import UnfitValue, read_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping

    from aiohttp.web_request import BaseRequest

    from headrace.console.auth.broker_login import Identity
    from headrace.console.auth.sessions import Session, Sessions
    from headrace.console.broker.link import BrokerLink
    from headrace.console.broker.lists import ListOperation, Row
    from headrace.console.http.body_memory import BodyMemory
    from headrace.console.http.forms import Form
    from headrace.console.settings import ConsoleSettings
    from headrace.console.state.broker_mirror import BrokerMirror
    from headrace.management_operations import OperationName
    from headrace.untyped import Json, JsonObject

EMPTY = frozenset((b"", b"null", b"undefined"))  # Bodies that are read as an empty object.
EMPTY_MAX = 1024  # Bytes of such a body with spaces around; longer bodies are not copied.
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
AGENT_MAX = 200  # Characters of the user agent in the audit log.


class HttpCall:
    """A request with its user, and the broker as that user."""

    def __init__(
        self,
        request: BaseRequest,
        *,
        template: str,
        path: Mapping[str, str],
        body_max: int,
        required_fields: tuple[str, ...],
        identity: Identity | None,
        link: BrokerLink,
        state: BrokerMirror,
        settings: ConsoleSettings,
        sessions: Sessions,
        session: Session | None = None,
        bodies: BodyMemory | None = None,
        reading: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """``template`` and ``body_max`` are the path and the longest body of the route, in bytes.

        ``required_fields`` are those that the body must contain. ``bodies`` bounds the memory of
        users' bodies. ``reading`` is entered while the request waits for its body.
        """
        self.request = request
        self.template = template
        # As the client sent them; pages call functions with arguments instead of changing them.
        self.path: Final = path  # The parameters of the route's path, by name.
        self.query: Final[Mapping[str, str]] = request.query
        self.link = link
        self.state = state
        self.settings = settings
        self.sessions = sessions
        self.session = session  # The session of a browser; None for Basic and Bearer.
        self._identity = identity
        self._bodies = bodies
        self._body_max = body_max
        self.required_fields = required_fields
        self._acquired = 0  # Bytes of ``bodies``.
        self._reading = reading
        self._body: bytes | None = None
        self._form: Form | None = None

    def act_as(self, identity: Identity) -> None:
        """Continue with another ticket of the user."""
        self._identity = identity

    @property
    def identity(self) -> Identity:
        """The user of the request; routes without login have none."""
        assert self._identity is not None, f"{self.template} has no user"
        return self._identity

    @property
    def csrf(self) -> str:
        """The token that forms and scripts send back; empty without a session."""
        return "" if self.session is None else self.session.csrf

    def notice(self, text: str) -> None:
        """Show a text on the next page."""
        if self.session is not None:
            self.session.notices.append(text)

    def notices(self) -> list[str]:
        """Return the texts for the next page, and forget them."""
        return [] if self.session is None else self.session.take_notices()

    # --- The broker ------------------------------------------------------------------------------

    async def ask(
        self, do: OperationName, rows: list[JsonObject] | None = None, **fields: object
    ) -> JsonObject:
        """Run an operation as the user; return its last line."""
        return await self.link.ask(do, rows=rows, **self._acting(fields))

    def items(self, do: OperationName, **fields: object) -> AsyncGenerator[JsonObject, None]:
        """Run an operation as the user; yield its items."""
        return self.link.items(do, **self._acting(fields))

    async def answer(
        self, do: OperationName, rows: list[JsonObject] | None = None, **fields: object
    ) -> tuple[list[JsonObject], JsonObject]:
        """Run an operation as the user; return its items and its last line."""
        return await self.link.answer(do, rows=rows, **self._acting(fields))

    def lines(self, do: OperationName, **fields: object) -> AsyncGenerator[JsonObject, None]:
        """Run an operation as the user; yield its lines."""
        return self.link.lines(do, **self._acting(fields))

    async def rows(self, listing: ListOperation[Row], **fields: object) -> list[Row]:
        """Return the rows of a list that the user sees."""
        return await self.link.rows(listing, **self._acting(fields))

    def _acting(self, fields: JsonObject) -> JsonObject:
        agent = self.request.headers.get("User-Agent", "")[:AGENT_MAX]
        return {
            "ticket": self.identity.ticket,
            "peer": peer_of(self.request),
            "agent": agent or None,
            **fields,
        }

    # --- The body --------------------------------------------------------------------------------

    async def body(self) -> JsonObject:
        """Return the JSON object of the body; ``{}`` for an empty body.

        Raises:
            HttpError: the body is too long, too slow, or not a JSON object.
        """
        value = parse_json(await self.raw_body())
        if isinstance(value, str):
            raise bad_request("the body is a JSON string; is it doubly JSON-encoded?", "not_json")
        if not isinstance(value, dict):
            raise bad_request("the body is not a JSON object", "not_json")
        return value

    async def form(self) -> Form:
        """Return the fields of an HTML form.

        Raises:
            HttpError: the body is too long, too slow, or not a form.
        """
        if self._form is None:
            try:
                kind = self.request.headers.get("Content-Type", "")
                self._form = parse(await self.raw_body(), kind)
            except FormError as error:
                raise bad_request(str(error)) from None
        return self._form

    async def raw_body(self) -> bytes:
        """Return the body.

        Raises:
            HttpError: the body is too long, or too slow.
        """
        if self._body is None:
            self._body = await self._read_body()
        return self._body

    def close(self) -> None:
        """Release the memory of the body: the request is answered."""
        self._body = self._form = None
        if self._bodies is not None and self._acquired:
            self._bodies.release(self._acquired)
            self._acquired = 0

    async def _read_body(self) -> bytes:
        size_max = self._body_max
        length = self.request.content_length
        if length is not None and length > size_max:
            self._too_long()
        expects_continue = self.request.headers.get("Expect", "").lower() == "100-continue"
        if self._bodies is not None and length != 0:
            size = size_max if length is None else length
            try:
                await self._bodies.acquire(size)
            except HttpError:
                if not expects_continue:
                    await self._skip_body()
                raise
            self._acquired = size
        if expects_continue:
            await self.request.writer.write(CONTINUE)
            self.request.writer.output_size = 0  # The answer has not begun.
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                with self._reading():
                    async for chunk in self.request.content.iter_any():
                        body += chunk
                        if len(body) > size_max:
                            self._too_long()
        except TimeoutError:
            raise HttpError(
                408, f"the body takes longer than {BODY_S:.0f} s", closes=True
            ) from None
        return bytes(body)

    async def _skip_body(self) -> None:
        """Read and drop the body: most clients read an answer only after they sent all of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BODY_S):
                async for _ in self.request.content.iter_any():
                    pass

    def _too_long(self) -> NoReturn:
        raise HttpError(
            400,
            f"Exceeded HTTP request body size limit ({self._body_max} bytes)",
            closes=True,
        )


def parse_json(body: bytes) -> Json:
    """Return the value of a body.

    Raises:
        HttpError: the body is not JSON.
    """
    if body.isspace() or (len(body) <= EMPTY_MAX and body.strip() in EMPTY):
        return {}
    try:
        return read_json(body)
    except UnfitValue as error:
        raise bad_request(f"the body is not valid JSON: {error}", "not_json") from None
    except ValueError:
        raise bad_request("the body is not valid JSON", "not_json") from None
