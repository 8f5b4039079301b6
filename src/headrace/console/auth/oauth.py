# SPDX-License-Identifier: Apache-2.0
"""Logins at an OAuth 2 authorization server: code with PKCE (RFC 6749, RFC 7636, RFC 9700).

The console is a public client and has no secret. An attempt to log in is kept in a cookie of the
browser, the mark. State, nonce and code verifier are hashes of the mark under a key of this
process, so that attempts that are never finished cost no memory.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import ipaddress
import json
import re
import secrets
import ssl
import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import aiohttp

from headrace import certificate_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from headrace.console.settings import OAuthClient
    from headrace.untyped import JsonObject

ATTEMPT_S = 600.0  # Time to log in at the authorization server.
ANSWER_S = 10.0  # Time for its answer,
ANSWER_BYTES_MAX = 256 << 10  # which has so many bytes at most.
WANTED_MAX = 2000  # Bytes.
MARK_MAX = 4096  # Characters.
CODE_MAX = 4096
ERROR = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # Error codes that a page repeats.
REFUSED = "the authorization server refused the login"


class AuthorizationError(Exception):
    """The login failed; the text says why, and has no text of the authorization server's."""


class Authorizations:
    """Attempts to log in, which browsers keep."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def begin(self, wanted: str) -> str:
        """Return the mark of a new attempt; ``wanted`` is the page to go on with."""
        raw = wanted.encode()
        path = base64.urlsafe_b64encode(raw if len(raw) <= WANTED_MAX else b"/").decode()
        return f"{secrets.token_urlsafe(16)}.{self._clock():.0f}.{path}"

    def wanted(self, mark: str, state: str) -> str:
        """Return the page to go on with after an attempt.

        Raises:
            AuthorizationError: the attempt is over, or this browser did not begin it.
        """
        proof = self.state(mark)
        if not hmac.compare_digest(proof.encode(), state.encode(errors="replace")):
            raise AuthorizationError("this browser did not begin the login")
        _, began, path = mark.split(".")
        if self._clock() - int(began) > ATTEMPT_S:
            raise AuthorizationError(f"the login took longer than {ATTEMPT_S:.0f} s")
        return base64.urlsafe_b64decode(path).decode()

    def state(self, mark: str) -> str:
        """Return what the authorization server sends back."""
        return self._derived("state", mark)

    def nonce(self, mark: str) -> str:
        """Return what an identity token must repeat."""
        return self._derived("nonce", mark)

    def verifier(self, mark: str) -> str:
        """Return the code verifier of RFC 7636."""
        return self._derived("verifier", mark)

    def _derived(self, purpose: str, mark: str) -> str:
        return encoded(hmac.digest(self._key, f"{purpose}\0{mark}".encode(), hashlib.sha256))


def encoded(raw: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def challenge_of(verifier: str) -> str:
    """Return the code challenge of a verifier, by the method S256."""
    return encoded(hashlib.sha256(verifier.encode()).digest())


def address_of(client: OAuthClient, marks: Authorizations, mark: str, redirect: str) -> str:
    """Return the address at the authorization server that begins an attempt."""
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect,
        "scope": client.scopes,
        "state": marks.state(mark),
        "nonce": marks.nonce(mark),
        "code_challenge": challenge_of(marks.verifier(mark)),
        "code_challenge_method": "S256",
    }
    between = "&" if urlsplit(client.authorization_endpoint).query else "?"
    return f"{client.authorization_endpoint}{between}{urlencode(query)}"


def code_of(client: OAuthClient, query: Mapping[str, str]) -> str:
    """Return the code in the authorization server's answer.

    Raises:
        AuthorizationError: it has an error, comes from another server, or has no code.
    """
    if client.issuer and query.get("iss", client.issuer) != client.issuer:  # RFC 9207.
        raise AuthorizationError("the answer is of another authorization server")
    if "error" in query:
        code = query["error"] if ERROR.fullmatch(query["error"]) else "error"
        raise AuthorizationError(f"{REFUSED}: {code}")
    code = query.get("code", "")
    if not 0 < len(code) <= CODE_MAX:
        raise AuthorizationError(f"{REFUSED}: it sent no code")
    return code


async def token_of(
    client: OAuthClient, marks: Authorizations, mark: str, code: str, redirect: str
) -> str:
    """Return the access token for a code.

    Raises:
        AuthorizationError: the authorization server gives none.
    """
    sent = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "client_id": client.client_id,
        "code_verifier": marks.verifier(mark),
    }
    answer = await post(client, sent)
    token, kind = answer.get("access_token"), answer.get("token_type")
    if not isinstance(token, str) or not isinstance(kind, str) or kind.lower() != "bearer":
        raise AuthorizationError(f"{REFUSED}: it sent no bearer token")
    identity = answer.get("id_token")
    if identity is not None and nonce_of(identity) != marks.nonce(mark):
        raise AuthorizationError("the identity token is of another login")
    return token


async def post(client: OAuthClient, form: Mapping[str, str]) -> JsonObject:
    """Return the token endpoint's answer.

    Raises:
        AuthorizationError: it does not answer, or with an error.
    """
    context = ssl.create_default_context(cafile=client.authorities)
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    body = bytearray()
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session,
            session.post(
                client.token_endpoint,
                data=form,
                headers={"Accept": "application/json", "Accept-Encoding": "identity"},
                allow_redirects=False,
                ssl=context,
            ) as response,
        ):
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise AuthorizationError("the authorization server's answer is too long")
            status = response.status
        value = json.loads(body)
    except (aiohttp.ClientError, OSError) as error:
        text = "the authorization server does not answer"
        refused = certificate_faults.of(error)
        if refused is not None:
            text = f"{text}: its certificate is refused: {certificate_faults.said(refused)}"
        raise AuthorizationError(text) from None
    except (ValueError, RecursionError):
        raise AuthorizationError("the authorization server's answer is not valid JSON") from None
    if status != 200 or not isinstance(value, dict):
        raise AuthorizationError(f"{REFUSED}: status {status} for the code")
    return value


def nonce_of(token: object) -> str:
    """Return the nonce of an identity token; empty without one.

    The signature is not checked: the token came from the token endpoint itself, over TLS (OpenID
    Connect Core, section 3.1.3.7), and names no user. The broker checks the access token.
    """
    try:
        part = str(token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return str(claims["nonce"])
    except (IndexError, KeyError, TypeError, ValueError, RecursionError, binascii.Error):
        return ""


def check(client: OAuthClient) -> None:
    """Refuse settings with which codes and tokens could be read on their way.

    Raises:
        ValueError: an endpoint is no https address, or one of another machine.
    """
    for endpoint in (client.authorization_endpoint, client.token_endpoint):
        parts = urlsplit(endpoint)
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and is_loopback(parts.hostname or "")
        )
        if not is_safe or not parts.hostname or parts.fragment:
            raise ValueError(f"'{endpoint}' is not an https address of an authorization server")


def is_loopback(host: str) -> bool:
    """Return True for this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
