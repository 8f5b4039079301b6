# SPDX-License-Identifier: Apache-2.0
"""Logins of connections, renewed secrets, and expiring credentials.

Logins over HTTP use ``LoginService.admit``, with the same mechanisms, delays and rules;
:mod:`headrace.server.management.tickets` has their number, idle time and end.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from headrace.gateway.sasl.logins import WITHDRAWN, Logins
from headrace.gateway.sasl.mechanism import MechanismServices
from headrace.gateway.sasl.mechanisms import MechanismError, load
from headrace.gateway.security.access import Access
from headrace.gateway.security.client_connection import client_version
from headrace.gateway.security.remote_peer import LoginRefused
from headrace.gateway.security.throttle import Throttle
from headrace.server.login.attempts import LoginAttempts
from headrace.server.login.token_issuers import KeyRing, TrustedIssuers, TrustError
from headrace.server.net.connection_gate import ConnectionGate
from headrace.server.observe.account_events import connection_facts

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from concurrent.futures import Executor

    from headrace.gateway.connection.context import Context
    from headrace.gateway.oauth.tokens import Tokens
    from headrace.gateway.sasl.mechanism import Mechanism
    from headrace.gateway.security.audit import Audit
    from headrace.gateway.security.client_connection import ClientConnection
    from headrace.gateway.security.remote_peer import RemotePeer
    from headrace.gateway.security.user import User
    from headrace.model.events import Events
    from headrace.server.config.settings import Settings
    from headrace.store.catalog.users import UserDirectory

log = logging.getLogger(__name__)

OUTDATED_MAX = 1024  # Outdated entries that the heap of expiry times keeps.


class LoginSettingError(Exception):
    """A login setting is unusable; the text names it and the reason."""


class LoginSettings(NamedTuple):
    """Validated login settings, with the mechanisms and issuers that they name."""

    settings: Settings
    trusted: TrustedIssuers
    services: MechanismServices
    mechanisms: dict[str, Mechanism]


class LoginService:
    """The logins of one broker."""

    def __init__(
        self,
        settings: Settings,
        users: UserDirectory,
        *,
        writer: Executor,
        secret: bytes,
        events: Events,
        audit: Audit,
        turn: Callable[[], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Apply the login settings.

        Args:
            settings: the settings of the broker.
            users: the directory of accounts.
            writer: the executor of the thread that reads and writes the accounts.
            secret: a secret of the broker, the same after a restart.
            events: gets the results of logins.
            audit: gets refusals and expiries.
            turn: sends pending output.
            clock: returns the Unix time in seconds.

        Raises:
            LoginSettingError: a setting cannot be used.
        """
        self._events = events
        self._audit = audit
        self._turn = turn
        self._clock = clock
        #: The Unix times at which credentials expire, by the number of the connection.
        self._expires: dict[int, float] = {}
        #: A heap of these times and numbers; entries of ended or renewed connections are outdated.
        self._expiring: list[tuple[float, int]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._http_logins = itertools.count(1)  # Numbers of logins without a connection.
        self.attempts = LoginAttempts()
        self._renewing: set[int] = set()  # The numbers of connections whose new secret is checked.
        self.context: Context | None = None
        self._ring = KeyRing()
        self._active: LoginSettings | None = None  # The settings in effect.
        self.access = Access(users, writer=writer, secret=secret, audit=audit, throttle=Throttle())
        self.gate = ConnectionGate()
        self.logins = Logins({}, audit=audit)
        self.use(self.prepare(settings))

    def prepare(self, settings: Settings) -> LoginSettings:
        """Validate login settings, for :meth:`use` to apply.

        Raises:
            LoginSettingError: a setting cannot be used.
        """
        try:
            trusted = TrustedIssuers(settings, self._ring)
            services = MechanismServices(
                self.access,
                self._tokens() if trusted.trusts else None,
                anonymous_user=settings.anonymous_user,
                certificate_name=settings.certificate_name,
                certificate_san=settings.certificate_san,
            )
            active = self._active
            if (
                active
                and active.services == services
                and active.settings.sasl_mechanisms == settings.sasl_mechanisms
            ):  # Unchanged mechanisms are kept, as they may have state.
                return LoginSettings(settings, trusted, services, active.mechanisms)
            return LoginSettings(
                settings, trusted, services, load(settings.sasl_mechanisms, services)
            )
        except TrustError as error:
            raise LoginSettingError(str(error)) from None
        except MechanismError as error:
            raise LoginSettingError(f"setting sasl_mechanisms: {error}") from None

    def _tokens(self) -> Tokens:
        """Return the checker of tokens: that of the settings in effect, or a new one."""
        from headrace.gateway.oauth.tokens import Tokens

        tokens = None if self._active is None else self._active.services.tokens
        return Tokens(self.access) if tokens is None else tokens

    def use(self, prepared: LoginSettings) -> None:
        """Apply login settings; close connections whose credentials they no longer allow."""
        settings, tokens = prepared.settings, prepared.services.tokens
        self._active = prepared
        prepared.trusted.begin()
        if tokens is not None:
            tokens.trust(prepared.trusted.trusts)
        self.logins.use(
            prepared.mechanisms,
            tokens,
            settings.plain_needs_tls,
            settings.plain_on_loopback,
        )
        self.access.guest_loopback_only = settings.guest_loopback_only
        self.access.throttle.limit(
            settings.login_failures_free,
            settings.login_delay_s,
            min(settings.login_delay_max_s, settings.handshake_s / 2),
            settings.login_forget_s,
        )
        self.gate.limit(
            settings.handshakes_max,
            settings.handshakes_per_address_max,
            settings.connection_rate_per_address,
        )
        for connection in [] if self.context is None else list(self.context.connections.values()):
            user = connection.user
            if user is not None and self.logins.is_withdrawn(user):
                self._end(connection, "credentials.withdrawn", WITHDRAWN)

    def forget(self, number: int) -> None:
        """Drop the state of a closed connection."""
        self.logins.remove(number)
        self.gate.leave(number)
        self._expires.pop(number, None)

    # --- Logins ---------------------------------------------------------------------------------

    def authenticate(self, connection: ClientConnection, mechanism: str, response: bytes) -> None:
        """Start a task for one step of a login, as hashing a password takes long."""
        self._start_task(self._check(connection, mechanism, response))

    async def _check(self, connection: ClientConnection, mechanism: str, response: bytes) -> None:
        """Run one step of a login, and send its outcome to the client."""
        assert self.context is not None
        number = connection.number
        peer = self.context.peer(number)
        if not connection.ended and (reason := self._audit.refusal()):
            log.warning("connection %d: login %s", number, reason)
            self.logins.remove(number)
            connection.force_close(f"login {reason}")
            self._turn()
            return
        try:
            outcome = await self.logins.step(number, peer, mechanism, response)
        except LoginRefused as error:
            log.warning("connection %d: login refused: %s", number, error)
            self.attempts.count(client_version(connection), peer.host, error.user, succeeded=False)
            if self._events.has_listeners:
                self._events.emit(
                    "user.authentication.failure",
                    **connection_facts(connection, mechanism),
                    error=str(error),
                )
            connection.refuse_login()
        else:
            if connection.ended:
                self.logins.remove(number)
            elif isinstance(outcome, bytes):
                connection.challenge(outcome)
            else:
                self.attempts.count(
                    client_version(connection), peer.host, outcome.name, succeeded=True
                )
                self._accept(connection, mechanism, outcome)
        self._turn()

    async def admit(self, peer: RemotePeer, mechanism: str, response: bytes, protocol: str) -> User:
        """Check a login over a protocol other than AMQP, which must take a single step.

        The mechanisms, threads, delays and rules are those of AMQP connections.

        Raises:
            LoginRefused: the credentials are refused.
        """
        facts: dict[str, object] = {
            "connection_type": protocol,
            "peer_host": peer.host,
            "peer_port": peer.port,
            "auth_mechanism": mechanism,
        }
        try:
            outcome = await self.logins.step(-next(self._http_logins), peer, mechanism, response)
            if isinstance(outcome, bytes):
                raise LoginRefused(f"mechanism {mechanism} needs another step")
        except LoginRefused as error:
            log.warning("login by %s from %s refused: %s", protocol, peer, error)
            self.attempts.count(protocol, peer.host, error.user, succeeded=False)
            if self._events.has_listeners:
                self._events.emit("user.authentication.failure", **facts, error=str(error))
            raise
        self.attempts.count(protocol, peer.host, outcome.name, succeeded=True)
        if self._events.has_listeners:
            self._events.emit("user.authentication.success", name=outcome.name, **facts)
        return outcome

    def _accept(self, connection: ClientConnection, mechanism: str, user: User) -> None:
        if self._events.has_listeners:
            facts = connection_facts(connection, mechanism)
            self._events.emit("user.authentication.success", name=user.name, **facts)
        self.gate.leave(connection.number)
        self.watch(connection.number, user)
        connection.accept_login(user)

    # --- Credentials that expire ----------------------------------------------------------------

    def renew(self, connection: ClientConnection, secret: bytes) -> None:
        """Start a task that checks renewed credentials of a connection.

        A request is refused while an earlier one is checked, as checks are expensive.
        """
        if connection.number in self._renewing:
            log.warning("connection %d: a new secret before an answer", connection.number)
            connection.refuse_secret()
            return
        self._renewing.add(connection.number)
        self._start_task(self._renew(connection, secret))

    async def _renew(self, connection: ClientConnection, secret: bytes) -> None:
        try:
            assert connection.user is not None
            user = await self.logins.renew(connection.user, secret)
        except LoginRefused as error:
            log.warning("connection %d: new secret refused: %s", connection.number, error)
            connection.refuse_secret()
        else:
            if not connection.ended:
                self.watch(connection.number, user)
                connection.accept_secret(user)
        finally:
            self._renewing.discard(connection.number)
        self._turn()

    def watch(self, number: int, user: User) -> None:
        """Have :meth:`expire` close a connection when the credentials of ``user`` expire."""
        previous_s = self._expires.pop(number, None)
        if user.expires_s is None:
            return
        self._expires[number] = user.expires_s
        if user.expires_s != previous_s:
            heapq.heappush(self._expiring, (user.expires_s, number))
        if len(self._expiring) > 2 * len(self._expires) + OUTDATED_MAX:
            self._expiring = [(expires_s, number) for number, expires_s in self._expires.items()]
            heapq.heapify(self._expiring)

    def expire(self) -> None:
        """Close the connections whose credentials have expired."""
        now_s = self._clock()
        while self._expiring and self._expiring[0][0] <= now_s:
            expires_s, number = heapq.heappop(self._expiring)
            if self._expires.get(number) != expires_s:
                continue  # The connection was closed, or its credentials were renewed.
            del self._expires[number]
            connection = None if self.context is None else self.context.connections.get(number)
            if connection is None or connection.user is None:
                continue
            reason = f"the credentials of user '{connection.user.name}' have expired"
            self._end(connection, "credentials.expired", reason)

    def _end(self, connection: ClientConnection, event: str, reason: str) -> None:
        if self._audit.active:
            self._audit.record(event, user=connection.user, allowed=False, reason=reason)
        connection.force_close(reason)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        """Run work as a task, and keep a reference to it until it ends."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
