# SPDX-License-Identifier: Apache-2.0
"""A small OAuth 2 authorization server: code with PKCE, tokens of an issuer."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from headrace.console.settings import OAuthClient
from support.certificates_and_tokens import RESOURCE, Issuer
from support.timeouts import PATIENCE_S

if TYPE_CHECKING:
    from pathlib import Path

CLIENT = "the-console"


class AuthorizationServer:
    """Lets a user in without asking, and gives each code once."""

    def __init__(self, keys: Path) -> None:
        self.issuer = Issuer()
        self.issuer.write(keys)
        self.keys = keys
        self.scopes: tuple[str, ...] = ("tag:management",)
        self.lives_s = 600.0
        self.identity: dict[str, Any] = {}  # Claims of identity tokens, over the right ones.
        self.tokens: list[str] = []
        self.verifiers: list[str] = []
        self._codes: dict[str, dict[str, str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join(PATIENCE_S)
        self._server.server_close()

    @property
    def url(self) -> str:
        """The issuer, and what its endpoints begin with."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def client(self) -> OAuthClient:
        """The settings of a console."""
        return OAuthClient(
            client_id=CLIENT,
            authorization_endpoint=f"{self.url}/authorize",
            token_endpoint=f"{self.url}/token",
            scopes="openid headrace",
            issuer=self.url,
        )

    @property
    def trust(self) -> dict[str, str]:
        """The settings of a broker that takes its tokens."""
        return {
            "oauth_jwks": str(self.keys),
            "oauth_resource_server_id": RESOURCE,
            "oauth_issuer": self.url,
        }

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the browser goes with its code."""
        assert query["client_id"] == CLIENT
        assert (query["response_type"], query["code_challenge_method"]) == ("code", "S256")
        code = secrets.token_urlsafe(16)
        self._codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.url}
        return f"{query['redirect_uri']}?{urlencode(back)}"

    def redeem(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        """Return the answer of the token endpoint."""
        asked = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        self.verifiers.append(form.get("code_verifier", ""))
        if (
            asked is None
            or asked["code_challenge"] != challenge
            or asked["redirect_uri"] != form.get("redirect_uri")
            or form.get("grant_type") != "authorization_code"
        ):
            return 400, {"error": "invalid_grant"}
        token = self.issuer.token(*self.scopes, iss=self.url, lives_s=self.lives_s)
        claims = {"nonce": asked["nonce"], "iss": self.url, "aud": CLIENT, **self.identity}
        self.tokens.append(token)
        return 200, {
            "access_token": token,
            "token_type": "Bearer",
            "id_token": self.issuer.token(**claims),
        }

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                query = {name: one[0] for name, one in parse_qs(urlsplit(self.path).query).items()}
                self.send_response(302)
                self.send_header("Location", server.authorize(query))
                self.end_headers()

            def do_POST(self) -> None:
                raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, answer = server.redeem({n: v[0] for n, v in parse_qs(raw).items()})
                body = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        return Handler
