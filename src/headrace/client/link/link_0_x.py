# SPDX-License-Identifier: Apache-2.0
"""One TCP or TLS connection to a broker, from the handshake to the close.

A reconnection opens a new link. The link feeds the sans-I/O machine of `headrace.protocol`, answers
the handshake, sends heartbeats and combines the output of one turn of the loop into one write. It
reports all other methods to its owner.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from typing import TYPE_CHECKING, Any, Protocol

from headrace.client.errors import (
    AuthenticationFailed,
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ProtocolViolation,
    UsageError,
    fresh,
)
from headrace.client.link import hints
from headrace.client.link.capabilities import CHECKED_METHODS, check_announced, renews_secrets
from headrace.client.link.login import Login
from headrace.client.url import FRAME_MIN_SIZE, Settings
from headrace.protocol.codec_0_x import (
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionRedirect,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    MethodBase,
)
from headrace.protocol.errors import AmqpError
from headrace.protocol.v0_x.connection import Connection as Machine
from headrace.protocol.v0_x.events import (
    ContentReceived,
    Event,
    Failed,
    HeaderRejected,
    MethodReceived,
)
from headrace.protocol.v0_x.handshake import Role, State
from headrace.spec.tables import V0_8, V0_9, V0_9_1, Version

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Container, Mapping, Sequence

    from headrace.client.channel.outgoing import Publication
    from headrace.protocol.v0_x.channel import DeliveryCollector
    from headrace.wire.table import Value

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 5.0  # The timeout of the broker's answer to connection.close.
BROKER_HOSTS_MAX = 16  # The maximum number of hosts that a broker may name.
WRITE_SIZE_MAX = 65536  # Bytes of output that are written without waiting for the loop's turn.

CAPABILITIES: dict[str, Value] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
}


# The numbers of each version in connection.start: some brokers send 8-0 for 0-8, and 0-9-1 is 0-9.
SUGGESTED_VERSIONS: dict[Version, tuple[tuple[int, int], ...]] = {
    V0_8: ((8, 0), (0, 8)),
    V0_9: ((0, 9), (9, 0)),
    V0_9_1: ((0, 9),),
}


# Keeps 0-9-1/s012, 0-9/connection.start-ok.client-properties#required-fields, 0-10/s010.
def client_properties() -> dict[str, str]:
    """Return the client properties of connection.start-ok, which all versions share."""
    import headrace

    return {
        "product": "Headrace client",
        "version": headrace.__version__,
        "platform": f"Python {platform.python_version()}",
        "information": "A client for AMQP 0-8, 0-9, 0-9-1 and 0-10",
    }


class LinkOwner(Protocol):
    """The upcalls of a link to its owner, the connection."""

    def link_method(self, channel: int, method: MethodBase) -> None:
        """Handle a method without content on a channel."""

    def link_content(self, channel: int, method: MethodBase, header: bytes, body: bytes) -> None:
        """Handle a method with content on a channel."""

    def link_channel_failed(self, channel: int, error: AmqpError) -> None:
        """Handle the failure of a channel, closed because the broker violated the protocol."""

    def link_blocked(self, link: Link, reason: str | None) -> None:
        """Handle connection.blocked with its reason, or connection.unblocked (None)."""

    def link_lost(self, link: Link, error: ClientError) -> None:
        """Handle the end of an open link; called once."""


class Notifier(Protocol):
    """Collects deliveries and confirms of a channel during one read."""

    def after_read(self) -> None:
        """Notify consumers and publishers of this read's deliveries and confirms."""


class Link(asyncio.Protocol):
    """One connection to a broker in AMQP 0-9-1; subclasses are for the other versions."""

    def __init__(self, settings: Settings, owner: LinkOwner) -> None:
        self.settings = settings
        self.server_properties: Mapping[str, Value] = {}
        # Any: the machines of 0-x and 0-10 have no common base, but share the members used here.
        self.machine: Any = self._make_machine(settings)
        self.redirected: tuple[str, ...] = ()  # Other brokers to use, best first.
        self.known_hosts: tuple[str, ...] = ()  # Other brokers that serve the virtual host.
        self.blocked: str | None = None  # The broker's reason not to read publishes.
        self.can_write = asyncio.Event()
        self.can_write.set()
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._error: ClientError | None = None  # The error that ended the link.
        self._is_closing = False
        self._is_reported = False
        self._is_flush_due = False
        self._is_reading = True
        self._received_at = self._sent_at = self._loop.time()
        self._heartbeat: asyncio.TimerHandle | None = None
        self.notifiers: list[Notifier] = []  # Channels with pending notifications.
        self._after_read_callbacks: dict[int, Callable[[], None]] = {}  # Callbacks by channel.
        self.login: Login | None = None
        self._renewal: asyncio.Future[None] | None = None  # The renewal of credentials.

    def _make_machine(self, settings: Settings) -> Any:
        """Return the sans-I/O state machine of the connection."""
        return Machine(
            Role.CLIENT,
            settings.version,
            frame_max=settings.frame_max,
            channel_max=settings.channel_max,
        )

    @classmethod
    async def open(
        cls,
        settings: Settings,
        owner: LinkOwner,
        ssl_context: ssl.SSLContext | None,
        timeout_s: float | None = None,
    ) -> Link:
        """Connect, log in and open the virtual host; ConnectFailed when that fails.

        `timeout_s` replaces the time limit of the settings.
        """
        loop = asyncio.get_running_loop()
        limit_s = settings.connection_timeout_s if timeout_s is None else timeout_s
        link = cls(settings, owner)
        if settings.tls and ssl_context is None:
            try:
                ssl_context = settings.ssl_context()
            except OSError as error:
                raise ConnectFailed(f"the TLS files of {settings.address}: {error}") from error
        try:
            async with asyncio.timeout(limit_s):
                await loop.create_connection(
                    lambda: link,
                    settings.host,
                    settings.port,
                    ssl=ssl_context if settings.tls else None,
                    server_hostname=(settings.server_name or settings.host)
                    if settings.tls
                    else None,
                )
                await link._opened
                if link._error is not None:  # The link ended before the caller saw it open.
                    raise _while_opening(link._error, link)
        except ConnectFailed as error:
            error.redirected = link.redirected
            raise
        except TimeoutError:
            link.abort()  # The link may have opened meanwhile.
            raise ConnectFailed(
                f"no connection to {settings.address} within {limit_s:g} s"
            ) from None
        except asyncio.CancelledError:  # Another broker was faster.
            link.abort()
            raise
        except OSError as error:
            hint = hints.connect_hint(error, settings)
            raise ConnectFailed(f"cannot connect to {settings.address}: {hint}") from error
        finally:
            if link.machine.state is not State.OPEN:
                link.abort()
        return link

    @property
    def is_open(self) -> bool:
        """Return True if methods can be sent."""
        return self._error is None and self.machine.state is State.OPEN

    @property
    def heartbeat_s(self) -> int:
        """The negotiated interval of heartbeats in seconds; 0 means none."""
        return int(self.machine.heartbeat_s)

    def send(self, channel: int, method: MethodBase) -> None:
        """Queue a method for sending; UsageError when the broker does not support it."""
        self._check()
        if type(method) in CHECKED_METHODS:
            settings = self.settings
            check_announced(settings.address, settings.version, self.server_properties, method)
        try:
            self.machine.send_method(channel, method)
        except AmqpError as error:
            raise ConnectionLost(str(error)) from error
        self._schedule_flush()

    def send_content(self, channel: int, method: MethodBase, header: bytes, body: bytes) -> None:
        """Queue a method with its content for sending."""
        self._check()
        try:
            self.machine.send_content(channel, method, header, body)
        except AmqpError as error:
            raise ConnectionLost(str(error)) from error
        self._schedule_flush()

    def send_publication(self, channel: int, publication: Publication) -> None:
        """Queue a publish for sending."""
        self._check()
        try:
            self.machine.send_encoded(
                channel, publication.method_payload, publication.header, publication.body
            )
        except AmqpError as error:
            raise ConnectionLost(str(error)) from error
        self._schedule_flush()

    def send_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        """Queue a basic.ack for sending."""
        self._check()
        try:
            self.machine.send_ack(channel, delivery_tag, multiple)
        except AmqpError as error:
            raise ConnectionLost(str(error)) from error
        self._schedule_flush()

    def send_frames(self, frames: bytes | bytearray) -> None:
        """Send encoded frames, after the queued ones."""
        self._check()
        self.flush()
        if self._transport is not None:
            self._sent_at = self._loop.time()
            self._transport.write(frames)

    async def close(self) -> None:
        """Send close, wait a bounded time for close-ok, and close the socket."""
        if self._is_closing:  # Another call is closing the link.
            await asyncio.shield(self._ended)
            return
        self._is_closing = True
        if self.is_open:
            self._send_close()
            self.flush()
            self.resume_reading()  # The answer follows deliveries that are dropped.
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await asyncio.shield(self._ended)
            except TimeoutError:
                log.warning("%s did not answer connection.close", self.settings.address)
            except asyncio.CancelledError:
                self.abort()
                raise
        self.abort()

    async def update_secret(self, secret: str, reason: str) -> None:
        """Give the broker new credentials.

        Raises:
            UsageError: the broker does not support it, or a renewal is in progress.
        """
        if not self.renews_secrets:
            label = self.settings.version.label
            raise UsageError(
                f"{self.settings.address} takes no new secrets in AMQP {label}; connect anew"
            )
        if self._renewal is not None:
            raise UsageError("the secret is being updated already")
        self._renewal = self._loop.create_future()
        try:
            self._send_secret(secret.encode(), reason)
            await self._renewal
        finally:
            self._renewal = None

    @property
    def renews_secrets(self) -> bool:
        """Return True if the broker takes new credentials on an open connection.

        Brokers that support this only in 0-9-1 do not announce it there.
        """
        version = self.settings.version
        return version is V0_9_1 or renews_secrets(self.server_properties)

    def _send_secret(self, secret: bytes, reason: str) -> None:
        self.send(0, ConnectionUpdateSecret(new_secret=secret, reason=reason))

    def _secret_updated(self) -> None:
        if self._renewal is not None and not self._renewal.done():
            self._renewal.set_result(None)

    def _send_close(self) -> None:
        self.machine.send_method(0, ConnectionClose(reply_code=200, reply_text="Goodbye"))

    def free_number(self, used_numbers: Container[int]) -> int:
        """Return the number of a free channel; UsageError if all are open."""
        open_numbers = self.machine.channels
        for number in range(1, self.machine.channel_max + 1):
            if number not in used_numbers and number not in open_numbers:
                return number
        raise UsageError(f"all {self.machine.channel_max} channels of the connection are in use")

    def start_gathering(
        self, channel: int, collector: DeliveryCollector, after_read: Callable[[], None]
    ) -> None:
        """Gather the deliveries of an open channel; call `after_read` after each read."""
        self.machine.channels[channel].collector = collector
        self._after_read_callbacks[channel] = after_read

    def deliver(self, channel: int, arrivals: DeliveryCollector) -> None:
        """Deliver the content of an open channel by the fast path, where the version has one."""
        if self.settings.version is V0_9_1:
            self.machine.channels[channel].collector = arrivals

    def stop_gathering(self, channel: int) -> None:
        """Stop calling `after_read` for a channel that is closed."""
        self._after_read_callbacks.pop(channel, None)

    @property
    def frame_max(self) -> int:
        """The negotiated maximum size of a frame in bytes."""
        return int(self.machine.frame_max)

    @property
    def channel_max(self) -> int:
        """The negotiated maximum number of channels."""
        return int(self.machine.channel_max)

    def abort(self) -> None:
        """Close the socket at once."""
        self._is_closing = True
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self._transport is not None:
            self._transport.abort()

    def fail(self, error: ClientError) -> None:
        """Close the socket because of `error`, after the queued output is sent."""
        if self._error is None:
            self._error = error
            self.flush()
            self._hang_up()
            self._report()

    def pause_reading(self) -> None:
        """Stop reading from the socket until `resume_reading`."""
        if self._is_reading and self._transport is not None and not self._transport.is_closing():
            self._is_reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again."""
        if not self._is_reading and self._transport is not None:
            self._is_reading = True
            self._received_at = self._loop.time()
            if not self._transport.is_closing():
                self._transport.resume_reading()

    def flush(self) -> None:
        """Write the queued output to the socket."""
        self._is_flush_due = False
        data = self.machine.data_to_send()
        self.machine.pool.dirty.clear()
        if data and self._transport is not None and not self._transport.is_closing():
            self._sent_at = self._loop.time()
            self._transport.write(data)

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the protocol header: the socket is connected, and the TLS handshake is done."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Handle input from the broker."""
        self._received_at = self._loop.time()
        events = self.machine.receive(data)
        while self.notifiers and self._error is None:  # Their deliveries precede the first event.
            self._notify(self.notifiers.pop())
        for event in events:
            if self._error is not None:
                break
            try:
                self._handle(event)
            except AmqpError as error:
                self._fail_protocol(error)
            except ClientError as error:
                self.fail(error)
        for after_read in list(self._after_read_callbacks.values()):
            try:
                after_read()
            except ClientError as error:
                self.fail(error)
        if self.machine.pending():
            self.flush()

    def _notify(self, arrivals: Notifier) -> None:
        try:
            arrivals.after_read()
        except AmqpError as error:
            self._fail_protocol(error)
        except ClientError as error:
            self.fail(error)

    def eof_received(self) -> None:
        """Handle the end of the broker's stream."""

    # Keeps 0-9-1/connection.close-ok#01, 0-9/connection.close-ok#reporting, 0-10/s029.
    def connection_lost(self, error: Exception | None) -> None:
        """Wake all waiters and report the end to the connection, once for each socket.

        ``error`` is None if the broker closed the socket, or this side did.
        """
        if self.machine.state is State.CLOSING:
            log.warning("%s hung up without connection.close-ok", self.settings.address)
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self.can_write.set()
        if not self._ended.done():
            self._ended.set_result(None)
        self._error = self._error or ConnectionLost(
            f"the connection to {self.settings.address} was lost: {error or 'the broker hung up'}"
        )
        self._report()

    def pause_writing(self) -> None:
        """Stop writing: the broker reads too slowly."""
        self.can_write.clear()

    def resume_writing(self) -> None:
        """Resume writing."""
        self.can_write.set()

    # --- Inside -------------------------------------------------------------------------------

    def _report(self) -> None:
        """Report the error to the call that opens the link, or to the owner of an open link."""
        assert self._error is not None
        if self._renewal is not None and not self._renewal.done():
            self._renewal.set_exception(fresh(self._error))
        if not self._opened.done():
            self._opened.set_exception(_while_opening(self._error, self))
            self._opened.exception()  # Read, so that asyncio does not log an unawaited error.
            self._is_reported = True
        elif not self._is_closing and not self._is_reported:
            self._is_reported = True
            self._owner.link_lost(self, self._error)

    def _check(self) -> None:
        if self._error is not None:
            raise self._error
        if self.machine.state is not State.OPEN:
            raise ConnectionLost(f"the connection to {self.settings.address} is closed")

    def _schedule_flush(self) -> None:
        if self.machine.pending() >= WRITE_SIZE_MAX:
            self.flush()
        elif not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self.flush)

    def _handle(self, event: Event) -> None:
        match event:
            case ContentReceived():
                self._owner.link_content(event.channel, event.method, event.header, event.body)
            case MethodReceived(channel=0):
                self._connection_method(event.method)
            case MethodReceived():
                self._owner.link_method(event.channel, event.method)
            case Failed(channel=0):
                self._fail_protocol(event.error)
            case Failed():
                self._owner.link_channel_failed(event.channel, event.error)
            case HeaderRejected():
                label = self.settings.version.label
                text = f"{self.settings.address} does not speak AMQP {label}: {event.header!r}"
                self.fail(ConnectFailed(text))

    def _connection_method(self, method: MethodBase) -> None:
        match method:
            case ConnectionStart():
                self._start(method)
            case ConnectionSecure():
                answer = ConnectionSecureOk(response=self._secure(method.challenge))
                self.machine.send_method(0, answer)
            case ConnectionTune():
                self._tune(method)
            case ConnectionRedirect():
                self.redirect([method.host, *method.known_hosts.split(",")])
            case ConnectionOpenOk():
                self.known_hosts = clean_hosts(method.known_hosts.split(","))
                self._received_at = self._loop.time()
                if not self._opened.done():
                    self._opened.set_result(None)
                if self.heartbeat_s:
                    self._check_heartbeat()
            case ConnectionUpdateSecretOk():
                self._secret_updated()
            case ConnectionBlocked():
                self._block(method.reason)
            case ConnectionUnblocked():
                self._block(None)
            case ConnectionClose():
                self.fail(
                    ConnectionClosed(
                        method.reply_code,
                        method.reply_text,
                        (method.class_id, method.method_id),
                    )
                )
            case ConnectionCloseOk():
                self._hang_up()

    # Keeps 0-10/s026.
    def redirect(self, hosts: Sequence[str]) -> None:
        """Handle a redirection to one of `hosts` ("host:port") in place of open-ok."""
        self.redirected = clean_hosts(hosts)
        where = ", ".join(self.redirected)
        self.fail(ConnectFailed(f"{self.settings.address} redirects to {where}"))

    def _block(self, reason: str | None) -> None:
        self.blocked = reason
        self._owner.link_blocked(self, reason)

    def _hang_up(self) -> None:
        """Close the socket after the output is written, at the latest after CLOSE_TIMEOUT_S."""
        if self._transport is not None:
            self._transport.close()
            self._loop.call_later(CLOSE_TIMEOUT_S, self._transport.abort)

    # Keeps 0-9-1/connection.start#03, 0-9/connection.start#client-support.
    def _start(self, method: ConnectionStart) -> None:
        """Send the login.

        Raises:
            ConnectFailed: the broker suggests another version; `fail` then closes the socket.
        """
        self.server_properties = method.server_properties
        suggested = (method.version_major, method.version_minor)
        if suggested not in SUGGESTED_VERSIONS[self.settings.version]:
            raise ConnectFailed(
                f"{self.settings.address} suggests version {suggested[0]}-{suggested[1]}"
            )
        offered_mechanisms = method.mechanisms.decode("ascii", "replace").split()
        self.login = Login(self.settings, offered_mechanisms)
        properties: dict[str, Value] = {**client_properties()}
        capabilities = self._capabilities()
        if capabilities:
            properties["capabilities"] = capabilities
        if self.settings.name:
            properties["connection_name"] = self.settings.name
        self.machine.send_method(
            0,
            ConnectionStartOk(
                client_properties=properties,
                mechanism=self.login.mechanism,
                response=self.login.response,
                locale="en_US",
            ),
        )

    def _capabilities(self) -> dict[str, Value]:
        """Return the client's capabilities beyond the standard."""
        return CAPABILITIES

    def _secure(self, challenge: bytes) -> bytes:
        """Return the response to a challenge of the broker."""
        if self.login is None:
            raise ProtocolViolation("a challenge before the login")
        return self.login.answer(challenge)

    # Keeps 0-9-1/s015, 0-9-1/s017, 0-9/connection.tune.frame-max#minimum,
    # 0-9/connection.tune-ok.frame-max#minimum.
    def _tune(self, method: ConnectionTune) -> None:
        """Send the lower of both peers' limits; 0 means no limit (0-9-1/1.4.2.6)."""
        if self.login is not None:
            self.login.check_server_proof()
        if 0 < method.frame_max < FRAME_MIN_SIZE:
            raise ProtocolViolation(
                f"the broker's frames of {method.frame_max} bytes are below {FRAME_MIN_SIZE}"
            )
        settings = self.settings
        heartbeat_s = settings.heartbeat_s
        if heartbeat_s and method.heartbeat:
            heartbeat_s = min(heartbeat_s, method.heartbeat)
        self.machine.send_method(
            0,
            ConnectionTuneOk(
                channel_max=min(settings.channel_max, method.channel_max or settings.channel_max),
                frame_max=min(settings.frame_max, method.frame_max or settings.frame_max),
                heartbeat=heartbeat_s,
            ),
        )
        self.machine.send_method(
            0, ConnectionOpen(virtual_host=settings.vhost, insist=settings.insist)
        )

    # Keeps 0-10/s027.
    def _check_heartbeat(self) -> None:
        """Send a heartbeat if nothing else was sent; end the link after two silent intervals."""
        now_s = self._loop.time()
        if self._is_reading and now_s - self._received_at > 2 * self.heartbeat_s:
            text = f"{self.settings.address} was silent for two heartbeats of {self.heartbeat_s} s"
            if self._error is None and self._transport is not None:
                self._error = ConnectionLost(text)
                self._transport.abort()
                self._report()
            return
        if now_s - self._sent_at >= self.heartbeat_s / 2:
            self.machine.send_heartbeat()
            self.flush()
        self._heartbeat = self._loop.call_later(self.heartbeat_s / 2, self._check_heartbeat)

    def _fail_protocol(self, error: AmqpError) -> None:
        """Close with an error: the broker violated the protocol."""
        if self.machine.state not in (State.CLOSING, State.CLOSED):
            self.machine.fail(error)
            self.machine.events.clear()
        self.fail(ProtocolViolation(f"{self.settings.address} broke the protocol: {error}"))


def clean_hosts(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return up to BROKER_HOSTS_MAX of the hosts that a broker names ("host:port")."""
    names = [host.strip() for host in hosts if host.strip()]
    return tuple(names[:BROKER_HOSTS_MAX])


def _while_opening(reason: ClientError, link: Link) -> ClientError:
    """Return the error of an opening that failed for `reason`, with a hint at the cause."""
    if isinstance(reason, ConnectFailed):
        return reason
    if isinstance(reason, ConnectionClosed):
        kind = AuthenticationFailed if reason.code == 403 else ConnectFailed
        text = f"{reason}{hints.close_hint(reason, link.settings)}"
        return kind(text, reason.code, reason.text)
    state = link.machine.state
    hint = ""
    if state is State.AUTHENTICATING:
        hint = " (while logging in: is the user or the password wrong?)"
    elif state is State.OPENING:
        hint = " (while opening the virtual host: does it exist?)"
    elif not link.server_properties:
        hint = hints.greeting_hint(link.settings)
    return ConnectFailed(f"{reason}{hint}")
