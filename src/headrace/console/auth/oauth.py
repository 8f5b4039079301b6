# SPDX-License-Identifier: Apache-2.0
"""Logins at an OAuth 2 authorization server: code with PKCE (RFC 6749, RFC 7636, RFC 9700).

The console is a public client without a secret. A cookie of the browser holds the attempt to log
in: a random text, its time, and the page to continue with. State, nonce and code verifier are
hashes of the attempt under a key of this process, so abandoned attempts take no memory.
:mod:`headrace.console.pages.logins.oauth` has the pages.
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
ANSWER_S = 10.0  # Time for an answer of its token endpoint.
ANSWER_BYTES_MAX = 256 << 10  # The longest answer of the token endpoint.
PATH_MAX = 2000  # Bytes of the path to continue with.
ATTEMPT_MAX = 4096  # Characters of the cookie.
CODE_MAX = 4096  # Characters of an authorization code.
ERROR = re.compile(r"[A-Za-z0-9_.-]{1,64}")  # Error codes that a page may show.
REFUSED = "the authorization server refused the login"


class AuthorizationError(Exception):
    """The login failed; the text gives the reason, without text of the authorization server."""


class PendingLogins:
    """Logins at the authorization server that have begun; browsers keep each as a cookie."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._key = secrets.token_bytes(32)
        self._clock = clock

    def begin(self, next_path: str) -> str:
        """Return a new attempt to log in; ``next_path`` is the page to continue with."""
        raw = next_path.encode()
        path = base64.urlsafe_b64encode(raw if len(raw) <= PATH_MAX else b"/").decode()
        return f"{secrets.token_urlsafe(16)}.{self._clock():.0f}.{path}"

    def next_path(self, attempt: str, state: str) -> str:
        """Return the page to continue with after an attempt.

        Raises:
            AuthorizationError: the attempt is too old, or this browser did not begin it.
        """
        proof = self.state(attempt)
        if not hmac.compare_digest(proof.encode(), state.encode(errors="replace")):
            raise AuthorizationError("this browser did not begin the login")
        _, began, path = attempt.split(".")
        if self._clock() - int(began) > ATTEMPT_S:
            raise AuthorizationError(f"the login took longer than {ATTEMPT_S:.0f} s")
        return base64.urlsafe_b64decode(path).decode()

    def state(self, attempt: str) -> str:
        """Return the parameter ``state``, which the authorization server sends back."""
        return self._derive("state", attempt)

    def nonce(self, attempt: str) -> str:
        """Return the nonce that an identity token must repeat."""
        return self._derive("nonce", attempt)

    def verifier(self, attempt: str) -> str:
        """Return the code verifier of RFC 7636."""
        return self._derive("verifier", attempt)

    def _derive(self, purpose: str, attempt: str) -> str:
        return encode_base64url(
            hmac.digest(self._key, f"{purpose}\0{attempt}".encode(), hashlib.sha256)
        )


def encode_base64url(raw: bytes) -> str:
    """Return base64url without padding."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def code_challenge(verifier: str) -> str:
    """Return the code challenge of a verifier, by the method S256."""
    return encode_base64url(hashlib.sha256(verifier.encode()).digest())


def authorization_url(
    client: OAuthClient, pending: PendingLogins, attempt: str, redirect: str
) -> str:
    """Return the URL of the authorization server at which a browser logs in."""
    query = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect,
        "scope": client.scopes,
        "state": pending.state(attempt),
        "nonce": pending.nonce(attempt),
        "code_challenge": code_challenge(pending.verifier(attempt)),
        "code_challenge_method": "S256",
    }
    between = "&" if urlsplit(client.authorization_endpoint).query else "?"
    return f"{client.authorization_endpoint}{between}{urlencode(query)}"


def read_code(client: OAuthClient, query: Mapping[str, str]) -> str:
    """Return the code in the authorization server's answer.

    Raises:
        AuthorizationError: the answer has an error or no code, or is from another server.
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


async def fetch_token(
    client: OAuthClient, pending: PendingLogins, attempt: str, code: str, redirect: str
) -> str:
    """Return the access token for a code.

    Raises:
        AuthorizationError: the token endpoint refuses, or its answer is not a bearer token.
    """
    form = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect,
        "client_id": client.client_id,
        "code_verifier": pending.verifier(attempt),
    }
    answer = await request_token(client, form)
    token, kind = answer.get("access_token"), answer.get("token_type")
    if not isinstance(token, str) or not isinstance(kind, str) or kind.lower() != "bearer":
        raise AuthorizationError(f"{REFUSED}: it sent no bearer token")
    identity = answer.get("id_token")
    if identity is not None and read_nonce(identity) != pending.nonce(attempt):
        raise AuthorizationError("the identity token is of another login")
    return token


async def request_token(client: OAuthClient, form: Mapping[str, str]) -> JsonObject:
    """Post a form to the token endpoint; return its answer.

    Raises:
        AuthorizationError: it does not answer, or answers with an error.
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
        refused = certificate_faults.find_refusal(error)
        if refused is not None:
            text = f"{text}: its certificate is refused: {certificate_faults.fault_text(refused)}"
        raise AuthorizationError(text) from None
    except (ValueError, RecursionError):
        raise AuthorizationError("the authorization server's answer is not valid JSON") from None
    if status != 200 or not isinstance(value, dict):
        raise AuthorizationError(f"{REFUSED}: status {status} for the code")
    return value


def read_nonce(token: object) -> str:
    """Return the nonce of an identity token; empty without one.

    The signature is not checked: the token endpoint itself sent the token, over TLS (OpenID Connect
    Core, section 3.1.3.7), and the token names no user. The broker checks the access token.
    """
    try:
        part = str(token).split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return str(claims["nonce"])
    except (IndexError, KeyError, TypeError, ValueError, RecursionError, binascii.Error):
        return ""


def check_client(client: OAuthClient) -> None:
    """Refuse a client whose codes and tokens would cross a network in clear.

    Raises:
        ValueError: an endpoint is not an https address, nor an http address of this machine.
    """
    for endpoint in (client.authorization_endpoint, client.token_endpoint):
        parts = urlsplit(endpoint)
        is_safe = parts.scheme == "https" or (
            parts.scheme == "http" and is_loopback(parts.hostname or "")
        )
        if not is_safe or not parts.hostname or parts.fragment:
            raise ValueError(f"'{endpoint}' is not an https address of an authorization server")


def is_loopback(host: str) -> bool:
    """Return True for an address of this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
