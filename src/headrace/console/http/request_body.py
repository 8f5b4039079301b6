# SPDX-License-Identifier: Apache-2.0
"""The body of one request, read once: bytes, a JSON object, or the fields of an HTML form."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, NoReturn

from headrace.console.http.forms import FormError, parse_form
from headrace.console.http.limits import BODY_S
from headrace.console.http_errors import HttpError, bad_request
from headrace.exact_json import UnfitValue, read_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from aiohttp.web_request import BaseRequest

    from headrace.console.http.body_memory import BodyMemory
    from headrace.console.http.forms import Form
    from headrace.untyped import Json, JsonObject

EMPTY = frozenset((b"", b"null", b"undefined"))  # Bodies that are read as an empty object.
EMPTY_MAX = 1024  # Bytes of such a body with spaces around; longer bodies are not copied.
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class RequestBody:
    """Reads the body when a handler asks for it, and keeps it until :meth:`release`."""

    def __init__(
        self,
        request: BaseRequest,
        size_max: int,
        *,
        memory: BodyMemory | None = None,
        reading: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        """``size_max`` is the longest body of the route, in bytes.

        ``memory`` is the budget for the bodies of users; None for a body that is not counted.
        ``reading`` is entered while the request waits for its body.
        """
        self._request = request
        self._size_max = size_max
        self._memory = memory
        self._reading = reading
        self._acquired = 0  # Bytes of ``memory``.
        self._bytes: bytes | None = None
        self._form: Form | None = None

    async def read(self) -> bytes:
        """Return the bytes of the body.

        Raises:
            HttpError: the body is too long, or too slow.
        """
        if self._bytes is None:
            await self._acquire_memory()
            self._bytes = await self._receive()
        return self._bytes

    async def json_object(self) -> JsonObject:
        """Return the JSON object of the body; ``{}`` for an empty body.

        Raises:
            HttpError: the body is too long, too slow, or not a JSON object.
        """
        value = parse_json(await self.read())
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
            content_type = self._request.headers.get("Content-Type", "")
            try:
                self._form = parse_form(await self.read(), content_type)
            except FormError as error:
                raise bad_request(str(error)) from None
        return self._form

    def release(self) -> None:
        """Drop the body and return its memory; the server calls this after the answer."""
        self._bytes = self._form = None
        if self._memory is not None and self._acquired:
            self._memory.release(self._acquired)
            self._acquired = 0

    async def _acquire_memory(self) -> None:
        """Acquire the bytes that the body may take; a body without a length may take the most.

        Raises:
            HttpError: the body is too long, or too few bytes are free for too long.
        """
        length = self._request.content_length
        if length is not None and length > self._size_max:
            self._refuse_as_too_long()
        if self._memory is None or length == 0:
            return
        size = self._size_max if length is None else length
        try:
            await self._memory.acquire(size)
        except HttpError:
            if not self._expects_continue():
                await self._skip()
            raise
        self._acquired = size

    async def _receive(self) -> bytes:
        if self._expects_continue():
            await self._request.writer.write(CONTINUE)
            self._request.writer.output_size = 0  # The answer has not begun.
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_S):
                with self._reading():
                    async for chunk in self._request.content.iter_any():
                        body += chunk
                        if len(body) > self._size_max:
                            self._refuse_as_too_long()
        except TimeoutError:
            raise HttpError(
                408, f"the body takes longer than {BODY_S:.0f} s", closes=True
            ) from None
        return bytes(body)

    async def _skip(self) -> None:
        """Read and drop the body: most clients read an answer only after they sent all of it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(BODY_S):
                async for _ in self._request.content.iter_any():
                    pass

    def _expects_continue(self) -> bool:
        return self._request.headers.get("Expect", "").lower() == "100-continue"

    def _refuse_as_too_long(self) -> NoReturn:
        raise HttpError(
            400,
            f"Exceeded HTTP request body size limit ({self._size_max} bytes)",
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
