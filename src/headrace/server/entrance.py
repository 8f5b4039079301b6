# SPDX-License-Identifier: Apache-2.0
"""How connections come in: logins, new secrets, and the end of those whose time is over."""

from __future__ import annotations

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.gateway.access import Access
from headrace.gateway.logins import Logins
from headrace.gateway.sasl.mechanisms import MechanismError, load
from headrace.gateway.sasl.port import Desk, LoginRefused
from headrace.gateway.throttle import Throttle
from headrace.server.gate import Gate
from headrace.server.jwks import discoverer, loader
from headrace.server.user_events import connection_of

if TYPE_CHECKING:
    from headrace.gateway.audit import Audit
    from headrace.gateway.context import Context
    from headrace.gateway.oauth.tokens import Tokens
    from headrace.model.events import Events
    from headrace.server.settings import Settings
    from headrace.store.users import UserDirectory

log = logging.getLogger(__name__)

NO_PREFIX = "none"  # Of scopes.
SHARED = ("HS256", "HS384", "HS512")  # Algorithms of keys that both sides know; only when asked.


class EntranceError(Exception):
    """The settings of logins cannot be used; the text says which and why."""


class Entrance:
    """The logins of one broker."""

    def __init__(
        self,
        settings: Settings,
        users: UserDirectory,
        *,
        events: Events,
        audit: Audit,
        turn: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``turn`` is called when something is to be sent.

        Raises:
            EntranceError: a setting cannot be used.
        """
        self._events = events
        self._audit = audit
        self._turn = turn
        self._clock = clock
        self._expiring: list[tuple[float, int]] = []  # A heap: Unix time, number of a connection.
        self._tasks: set[asyncio.Task[None]] = set()
        self.context: Context | None = None
        self.access = Access(
            users,
            guest_loopback_only=settings.guest_loopback_only,
            audit=audit,
            throttle=Throttle(
                failures_free=settings.login_failures_free,
                delay_s=settings.login_delay_s,
                delay_max_s=min(settings.login_delay_max_s, settings.handshake_s / 2),
                forget_s=settings.login_forget_s,
            ),
        )
        tokens = make_tokens(settings, self.access)
        desk = Desk(
            self.access,
            tokens,
            anonymous_user=settings.anonymous_user,
            certificate_name=settings.certificate_name,
            certificate_san=settings.certificate_san,
        )
        try:
            mechanisms = load(settings.sasl_mechanisms, desk)
        except MechanismError as error:
            raise EntranceError(f"setting sasl_mechanisms: {error}") from None
        self.logins = Logins(
            mechanisms,
            tokens=tokens,
            plain_needs_tls=settings.plain_needs_tls,
            plain_on_loopback=settings.plain_on_loopback,
            audit=audit,
        )
        self.gate = Gate(
            waiting_max=settings.handshakes_max,
            waiting_per_address_max=settings.handshakes_per_address_max,
            rate_per_address=settings.connection_rate_per_address,
        )

    def forget(self, number: int) -> None:
        """A connection is over."""
        self.logins.forget(number)
        self.gate.leave(number)

    # --- Logins ---------------------------------------------------------------------------------

    def authenticate(self, connection: Any, mechanism: str, response: bytes) -> None:
        """Take a step of a login away from the loop: hashing a password takes its time."""
        self._begin(self._check(connection, mechanism, response))

    async def _check(self, connection: Any, mechanism: str, response: bytes) -> None:
        assert self.context is not None
        number = connection.number
        peer = self.context.peer(number)
        try:
            found = await self.logins.step(number, peer, mechanism, response)
        except LoginRefused as error:
            log.warning("connection %d: login refused: %s", number, error)
            if self._events.heard:
                self._events.tell(
                    "user.authentication.failure",
                    **connection_of(connection, mechanism),
                    error=str(error),
                )
            connection.login_refused()
        else:
            if connection.ended:
                self.logins.forget(number)
            elif isinstance(found, bytes):
                connection.challenge(found)
            else:
                self._let_in(connection, mechanism, found)
        self._turn()

    def _let_in(self, connection: Any, mechanism: str, user: Any) -> None:
        if self._events.heard:
            facts = connection_of(connection, mechanism)
            self._events.tell("user.authentication.success", name=user.name, **facts)
        self.gate.leave(connection.number)
        self._watch(connection.number, user)
        connection.logged_in(user)

    # --- Credentials that expire ----------------------------------------------------------------

    def renew(self, connection: Any, secret: bytes) -> None:
        """Check new credentials of a connection."""
        self._begin(self._renew(connection, secret))

    async def _renew(self, connection: Any, secret: bytes) -> None:
        try:
            user = await self.logins.renew(connection.user, secret)
        except LoginRefused as error:
            log.warning("connection %d: new secret refused: %s", connection.number, error)
            connection.not_renewed()
        else:
            if not connection.ended:
                self._watch(connection.number, user)
                connection.renewed(user)
        self._turn()

    def _watch(self, number: int, user: Any) -> None:
        if user.expires_s is not None:
            heapq.heappush(self._expiring, (user.expires_s, number))

    def expire(self) -> None:
        """Close the connections whose credentials are no longer good."""
        now = self._clock()
        while self._expiring and self._expiring[0][0] <= now:
            _, number = heapq.heappop(self._expiring)
            connection = None if self.context is None else self.context.connections.get(number)
            user = None if connection is None else connection.user
            if connection is None or user is None or (user.expires_s or math.inf) > now:
                continue  # It is gone, or was renewed.
            reason = f"the credentials of user '{user.name}' have expired"
            if self._audit.active:
                self._audit.tell("credentials.expired", user=user, allowed=False, reason=reason)
            connection.force_close(reason)

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def make_tokens(settings: Settings, access: Access) -> Tokens | None:
    """Return what checks bearer tokens, if they are served.

    Raises:
        EntranceError: a setting cannot be used, or the library for tokens is missing.
    """
    if not settings.oauth_jwks and not settings.oauth_issuer:
        return None
    named = "oauth_jwks" if settings.oauth_jwks else "oauth_issuer"
    try:
        from headrace.gateway.oauth.keys import Keys
        from headrace.gateway.oauth.scopes import ScopeError, check_aliases, read_aliases
        from headrace.gateway.oauth.tokens import ALGORITHMS, TokenRules, Tokens
    except ImportError:
        raise EntranceError(f"setting {named} needs headrace[oauth]") from None
    resources = tuple(settings.oauth_resource_server_id.split())
    if not resources:
        raise EntranceError(f"setting {named} needs oauth_resource_server_id")
    if not settings.oauth_verify_audience and not settings.oauth_issuer:
        raise EntranceError("setting oauth_verify_audience: without it, oauth_issuer must be set")
    try:
        if settings.oauth_jwks:
            load_keys = loader(settings.oauth_jwks, settings.oauth_jwks_ca)
        else:
            load_keys = discoverer(settings.oauth_issuer, settings.oauth_jwks_ca)
    except ValueError as error:
        raise EntranceError(f"setting {named}: {error}") from None
    algorithms = tuple(settings.oauth_algorithms.split())
    if not algorithms or "none" in (each.lower() for each in algorithms):
        raise EntranceError("setting oauth_algorithms: tokens must be signed")
    unknown = sorted({*algorithms} - {*ALGORITHMS.split(), *SHARED})
    if unknown:
        raise EntranceError(f"setting oauth_algorithms: there is no {', '.join(unknown)}")
    prefix = settings.oauth_scope_prefix
    try:
        aliases = read_aliases(settings.oauth_scope_aliases)
        for resource in resources:
            check_aliases(aliases, "" if prefix == NO_PREFIX else prefix or f"{resource}.")
    except ScopeError as error:
        raise EntranceError(f"setting oauth_scope_aliases: {error}") from None
    rules = TokenRules(
        resource_server_ids=resources,
        verify_audience=settings.oauth_verify_audience,
        scope_prefix="" if prefix == NO_PREFIX else prefix or None,
        scope_claims=tuple(settings.oauth_scope_claims.split()),
        aliases=aliases,
        issuer=settings.oauth_issuer,
        algorithms=algorithms,
        username_claims=tuple(settings.oauth_username_claims.split()),
        leeway_s=settings.oauth_leeway_s,
    )
    return Tokens(access, Keys(load_keys, fresh_s=settings.oauth_keys_s), rules)
