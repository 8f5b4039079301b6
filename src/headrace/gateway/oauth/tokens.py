# SPDX-License-Identifier: Apache-2.0
"""Bearer tokens: JWTs (RFC 7519) of a trusted key, for this broker, and within their times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jwt

from headrace.gateway.oauth.keys import Keys, NoKey
from headrace.gateway.oauth.scopes import Aliases, ScopeError, Scopes, find_values, read_scopes
from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.gateway.security.user import User

if TYPE_CHECKING:
    from jwt.types import Options

    from headrace.gateway.security.access import Access

Claims: TypeAlias = dict[str, Any]  # The type that PyJWT gives decoded JSON.
ALGORITHMS = "RS256 RS384 RS512 PS256 PS384 PS512 ES256 ES384 ES512 EdDSA"
NUMERIC_DATE_MAX = 1 << 40  # Seconds; far beyond any token's time.
SOURCE = "oauth"


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    """The rules by which a token is accepted."""

    resource_server_ids: tuple[str, ...]  # A token must name one of them (``aud``).
    verify_audience: bool = True  # If not, any audience is accepted.
    scope_prefix: str | None = None  # Prefix of our scopes; None: the resource server id and a dot.
    scope_claims: tuple[str, ...] = ("scope",)  # The paths of claims with scopes.
    aliases: Aliases = field(default_factory=dict)  # Scopes by alias.
    issuer: str = ""  # Required issuer (``iss``); empty: any.
    algorithms: tuple[str, ...] = tuple(ALGORITHMS.split())
    username_claims: tuple[str, ...] = ("sub", "client_id")
    leeway_s: int = 0  # Tolerated difference of clocks.


class Trust(NamedTuple):
    """A trusted issuer and its keys; without a name in the rules, any issuer with these keys."""

    keys: Keys
    rules: TokenRules

    @property
    def source(self) -> str:
        """The source of user names: the same name of another source is another user."""
        return f"{SOURCE} {self.rules.issuer}" if self.rules.issuer else SOURCE


class Tokens:
    """Verifies bearer tokens by the keys and rules of their issuers, and returns their users."""

    def __init__(
        self,
        access: Access,
        trusts: Iterable[Trust] = (),
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._access = access
        self._clock = clock
        self.trust(trusts)

    def trust(self, trusts: Iterable[Trust]) -> None:
        """Replace the trusted issuers; each issuer occurs once in ``trusts``."""
        self._trusts = {trust.rules.issuer: trust for trust in trusts}

    @property
    def sources(self) -> set[str]:
        """The sources of user names that are trusted."""
        return {trust.source for trust in self._trusts.values()}

    @staticmethod
    def looks_like_token(secret: bytes) -> bool:
        """Return True if a password is a token: three parts, the first a JSON object."""
        return secret.startswith(b"eyJ") and secret.count(b".") == 2

    async def user(self, token: bytes, peer: RemotePeer) -> User:
        """Return the user of a token.

        Raises:
            LoginRefused: the token is forged, expired, malformed, or for another audience.
        """
        async with self._access.attempt("", peer):
            return await self._user(token, peer)

    async def _user(self, token: bytes, peer: RemotePeer) -> User:
        try:
            text = token.decode("ascii")
            trust = self._trust(text)
            claims = await self._claims(text, trust)
            scopes = self._scopes(claims, trust.rules)
        except (NoKey, ScopeError) as error:
            raise LoginRefused(f"bearer token: {error}") from None
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise LoginRefused(f"bearer token: {type(error).__name__}") from None
        return User(
            self._access,
            self._name(claims, trust.rules),
            scopes.tags,
            peer,
            grants=scopes,
            source=trust.source,
            expires_s=claims["exp"] + trust.rules.leeway_s,
        )

    def _trust(self, token: str) -> Trust:
        """Return the trust to check a token with, by its unverified issuer.

        Raises:
            LoginRefused: the issuer of the token is not trusted.
        """
        if len(self._trusts) == 1:
            return next(iter(self._trusts.values()))
        unverified = jwt.decode(token, options={"verify_signature": False})
        issuer = unverified.get("iss", "")
        trust = self._trusts.get(issuer) if isinstance(issuer, str) else None
        trust = trust or self._trusts.get("")
        if trust is None:
            raise LoginRefused("bearer token: the issuer is not trusted")
        return trust

    def _scopes(self, claims: Claims, rules: TokenRules) -> Scopes:
        audience_claim = claims.get("aud")
        audiences = audience_claim if isinstance(audience_claim, list) else [audience_claim]
        own_ids = [own_id for own_id in rules.resource_server_ids if own_id in audiences]
        if len(own_ids) > 1:
            raise LoginRefused(
                f"bearer token: aud names several resource servers of this broker, "
                f"{', '.join(own_ids)}: request a token for one of them"
            )
        audience = own_ids[0] if own_ids else rules.resource_server_ids[0]
        prefix = f"{audience}." if rules.scope_prefix is None else rules.scope_prefix
        granted = read_scopes(claims, rules.scope_claims, audience)
        return Scopes(granted, prefix, aliases=rules.aliases, claims=claims)

    async def _claims(self, token: str, trust: Trust) -> Claims:
        rules = trust.rules
        header = jwt.get_unverified_header(token)
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in rules.algorithms or "crit" in header:
            raise LoginRefused("bearer token: the algorithm is not allowed")
        if kid is not None and not isinstance(kid, str):
            raise LoginRefused("bearer token: kid is not a string")
        key = await trust.keys.find(kid)
        if key.algorithm and key.algorithm != algorithm:
            raise LoginRefused("bearer token: the key is for another algorithm")
        options: Options = {
            "require": [
                "exp",
                *(["aud"] if rules.verify_audience else []),
                *(["iss"] if rules.issuer else []),
            ],
            "verify_aud": rules.verify_audience,
            "verify_iat": False,
            "verify_exp": False,  # _check_time does it, and requires integers.
            "verify_nbf": False,
        }
        claims: Claims = jwt.decode(
            token,
            key.key,
            algorithms=[algorithm],
            audience=rules.resource_server_ids if rules.verify_audience else None,
            issuer=rules.issuer or None,
            options=options,
        )
        self._check_time(claims, rules.leeway_s)
        return claims

    def _check_time(self, claims: Claims, leeway_s: int) -> None:
        now_s = self._clock()
        for name in ("exp", "nbf", "iat"):
            value = claims.get(name, 0)
            if type(value) is not int or not 0 <= value <= NUMERIC_DATE_MAX:
                raise LoginRefused(f"bearer token: {name} is not a whole number of seconds")
        if claims["exp"] + leeway_s <= now_s:
            raise LoginRefused("bearer token: the token has expired")
        if claims.get("nbf", 0) - leeway_s > now_s:
            raise LoginRefused("bearer token: the token is not valid yet")

    def _name(self, claims: Claims, rules: TokenRules) -> str:
        for claim in rules.username_claims:
            name = next(find_values(claims, claim), None)
            if isinstance(name, str) and name:
                if not name.isprintable() or len(name.encode()) > 255:
                    raise LoginRefused(f"bearer token: {claim} is not a user's name")
                return name
        raise LoginRefused("bearer token: no claim names a user")
