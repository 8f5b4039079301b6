# SPDX-License-Identifier: Apache-2.0
"""One connection to a broker in AMQP 0-10.

Its owner uses it like any other link: a :class:`~headrace.client.link.channel_over_0_10.Bridge` for
each channel translates the methods of 0-9-1 to the commands of a session. Programs that use the
commands have a :class:`~headrace.client.session.session.Session` on the same link.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from headrace.client.errors import (
    ClientError,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ProtocolViolation,
    UsageError,
)
from headrace.client.link.channel_over_0_10 import Bridge
from headrace.client.link.link_0_x import Link, introduction, named_hosts
from headrace.client.link.login import Login
from headrace.protocol.codec_0_10 import (
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
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Control,
    Struct,
    decode_command,
)
from headrace.protocol.codec_0_x import BasicAck
from headrace.protocol.errors import AmqpError
from headrace.protocol.errors_0_10 import CloseError, ExecutionError
from headrace.protocol.v0_10.connection.connection import Connection as Machine
from headrace.protocol.v0_x.handshake import Role, State
from headrace.spec.commands import FRAME_SIZE_MAX, FRAME_SIZE_MIN

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from headrace.client.channel.outgoing import Publication
    from headrace.client.url import Settings
    from headrace.protocol.codec_0_10 import Command, ExecutionException
    from headrace.protocol.codec_0_x import MethodBase
    from headrace.protocol.v0_10.session.session import Session
    from headrace.protocol.v0_x.channel import DeliveryCollector
    from headrace.wire.types_0_10 import Map

log = logging.getLogger(__name__)

INVALID_PATH = 402


class User(Protocol):
    """Callbacks of a session's user."""

    def attached(self) -> None:
        """The session is attached: commands can be sent, and sent ones are not lost."""

    def detached(self, code: int) -> None:
        """The session left its channel; `code` is 0 or a session.detach-code."""

    def transferred(self, number: int, command: Any, header: bytes, body: bytes) -> None:
        """A message arrived; complete `number` after handling it."""

    def command(self, number: int, command: Command, header: bytes, body: bytes) -> None:
        """Another command arrived; it is completed for you."""

    def result(self, number: int, value: Struct | None) -> None:
        """Handle the result of a command."""

    def completed(self, low: int, high: int) -> None:
        """These commands of yours are executed."""

    def exception(self, error: ExecutionException) -> None:
        """A command of yours failed, and the session with it."""

    def resumed(self, kept: bool) -> None:
        """The session is attached again; `kept` is True if the broker still had its state."""

    def granted(self, timeout_s: int | None) -> None:
        """Seconds for which the broker keeps the session when it is detached."""

    def given_up(self, low: int, high: int) -> None:
        """These commands of yours were lost with an attachment."""

    def lost(self, error: ClientError) -> None:
        """The link is gone."""


class ClientMachine(Machine):
    """The machine, with upcalls to its link. Errors of the link end the connection."""

    def __init__(self, link: Link010, settings: Settings) -> None:
        Machine.__init__(
            self,
            Role.CLIENT,
            max_frame_size=min(settings.frame_max, FRAME_SIZE_MAX),
            channel_max=min(settings.channel_max + 1, 65535),
        )
        self.link = link

    def _tell(self, act: Callable[..., None], *arguments: object) -> None:
        try:
            act(*arguments)
        except ClientError as error:
            self.link.fail(error)
        except AmqpError as error:
            self.link.report_violation(str(error))

    def _user(self, session: Session) -> User:
        return self.link.users[session]

    def on_control(self, number: int, control: Control) -> None:
        self._tell(self.link.control, control)

    def on_rejected(self, header: bytes) -> None:
        text = f"{self.link.settings.address} does not speak AMQP 0-10: {header!r}"
        self.link.fail(ConnectFailed(text))

    def on_failed(self, error: CloseError) -> None:
        self.link.report_violation(str(error))

    def on_attached(self, session: Session) -> None:
        self._tell(self._user(session).attached)

    def on_detached(self, session: Session, channel: int, code: int) -> None:
        user = self.link.users.get(session)
        if user is not None:
            self._tell(user.detached, code)

    def on_transfer_large(
        self,
        session: Session,
        start: bytes,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        _, command = decode_command(bytes(start[:args_end]))
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        user = self._user(session)
        self._tell(user.transferred, session.command_id, command, start[header:header_end], body)

    def on_command(
        self, session: Session, command: Command, header: bytes, parts: tuple[bytes, ...]
    ) -> None:
        number = session.command_id
        self._tell(self._user(session).command, number, command, header, b"".join(parts))
        session.complete(number)

    def on_result(self, session: Session, command_id: int, value: Struct | None) -> None:
        self._tell(self._user(session).result, command_id, value)

    def on_exception(self, session: Session, exception: ExecutionException) -> None:
        self._tell(self._user(session).exception, exception)

    def on_completed(self, session: Session, lo: int, hi: int) -> None:
        self._tell(self._user(session).completed, lo, hi)

    def on_session_control(self, session: Session, control: Control) -> None:
        if control.NAME == "session.timeout":
            self._tell(self._user(session).granted, session.timeout_s)

    def on_resumed(self, session: Session, kept: bool) -> None:
        self._tell(self._user(session).resumed, kept)

    def on_given_up(self, session: Session, lo: int, hi: int) -> None:
        self._tell(self._user(session).given_up, lo, hi)

    def on_session_failed(self, session: Session, error: ExecutionError) -> None:
        log.warning("%s broke a rule in a session: %s", self.link.settings.address, error)

    def choose_timeout(self, session: Session, requested: int | None) -> int | None:
        return requested


class Link010(Link):
    """A link in AMQP 0-10. The owner's channels have the numbers of their sessions' channels."""

    machine: ClientMachine

    def _make_machine(self, settings: Settings) -> ClientMachine:
        self.users: dict[Session, User] = {}
        self.bridges: dict[int, Bridge] = {}
        return ClientMachine(self, settings)

    # --- For the owner ------------------------------------------------------------------------

    @property
    def frame_max(self) -> int:
        return self.machine.max_frame_size

    @property
    def channel_max(self) -> int:
        """Return the highest channel number; we use numbers from 1."""
        return self.machine.channel_max - 1

    def free_number(self, taken: Container[int]) -> int:
        for number in range(1, self.machine.channel_max):
            if number not in taken and number not in self.machine.attached:
                return number
        raise UsageError(f"all {self.channel_max} channels of the connection are in use")

    def _send_secret(self, secret: bytes, reason: str) -> None:
        self._check()
        self.machine.send_control(ConnectionUpdateSecret(new_secret=secret, reason=reason))
        self.schedule_flush()

    def send(self, channel: int, method: MethodBase) -> None:
        self._check()
        bridge = self.bridges.get(channel)
        if bridge is None:
            bridge = Bridge(self, channel, self._owner)
            self.bridges[channel] = bridge
        bridge.request(method)
        self.schedule_flush()

    def send_content(self, channel: int, method: MethodBase, header: bytes, body: bytes) -> None:
        self._check()
        self.bridges[channel].publishes.send(method, header, body)
        self.schedule_flush()

    def send_publication(self, channel: int, publication: Publication) -> None:
        self.send_content(channel, publication.method, publication.header, publication.body)

    def send_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        self.send(channel, BasicAck(delivery_tag=delivery_tag, multiple=multiple))

    def flush(self) -> None:
        """Write what is queued, with what the sessions have gathered."""
        for bridge in self.bridges.values():
            bridge.gather()
        if self.machine.state is State.OPEN:
            self.machine.announce()
        super().flush()

    # --- For sessions -------------------------------------------------------------------------

    def attach(self, session: Session, user: User, number: int, *, force: bool = False) -> None:
        """Attach a session to a channel."""
        self._check()
        self.users[session] = user
        try:
            self.machine.attach(session, number, force)
        except CloseError as error:
            del self.users[session]
            raise UsageError(str(error)) from error
        self.schedule_flush()

    def gather(
        self, channel: int, collector: DeliveryCollector, after_read: Callable[[], None]
    ) -> None:
        """Do nothing: transfers become deliveries one by one, for the sink."""

    def forget(self, session: Session) -> None:
        """Remove a session."""
        self.users.pop(session, None)

    def forget_bridge(self, number: int) -> None:
        """Remove the bridge of a closed channel."""
        self.bridges.pop(number, None)

    def report_violation(self, text: str) -> None:
        """End the link: the broker violated the protocol."""
        self.fail(ProtocolViolation(f"{self.settings.address} broke the protocol: {text}"))

    def schedule_flush(self) -> None:
        """Write soon what is queued."""
        self._schedule_flush()

    def call_soon(self, act: Callable[[], None]) -> None:
        """Call a function in the next turn of the loop."""
        self._loop.call_soon(act)

    # --- The opening --------------------------------------------------------------------------

    def control(self, control: Control) -> None:
        """Handle a control of the connection class."""
        match control:
            case ConnectionStart():
                self._start_0_10(control)
            case ConnectionSecure():
                answer = self._secure(control.challenge or b"")
                self.machine.send_control(ConnectionSecureOk(response=answer))
            case ConnectionTune():
                self._tune_0_10(control)
            case ConnectionOpenOk():
                self.known_hosts = named_hosts(control.known_hosts or ())
                self._received_at = self._loop.time()
                if not self._opened.done():
                    self._opened.set_result(None)
                if self.heartbeat_s:
                    self._beat()
            case ConnectionUpdateSecretOk():
                self._secret_taken()
            case ConnectionRedirect():
                self.redirect([control.host or "", *(control.known_hosts or ())])
            case ConnectionClose():
                self.fail(ConnectionClosed(control.reply_code or 0, control.reply_text or ""))
            case ConnectionCloseOk():
                self._hang_up()

    def _start_0_10(self, start: ConnectionStart) -> None:
        self.server_properties = dict(start.server_properties or {})  # type: ignore[arg-type]  # More types.
        offered = [str(mechanism) for mechanism in start.mechanisms or ()]
        self.login = Login(self.settings, offered)
        locales = start.locales or ["en_US"]
        properties: Map = {**introduction()}
        if self.settings.name:
            properties["connection_name"] = self.settings.name
        self.machine.send_control(
            ConnectionStartOk(
                client_properties=properties,
                mechanism=self.login.mechanism,
                response=self.login.response,
                locale="en_US" if "en_US" in locales else locales[0],
            )
        )

    def _tune_0_10(self, tune: ConnectionTune) -> None:
        """Choose limits within the broker's offer."""
        if self.login is not None:
            self.login.check_over()
        settings = self.settings
        most = tune.channel_max
        size = min(settings.frame_max, FRAME_SIZE_MAX)
        if tune.max_frame_size is not None:
            if tune.max_frame_size < FRAME_SIZE_MIN:
                raise ProtocolViolation(
                    f"the broker's frames of {tune.max_frame_size} octets are below "
                    f"{FRAME_SIZE_MIN}"
                )
            size = min(size, tune.max_frame_size)
        channels = min(settings.channel_max + 1, 65535)
        self.machine.send_control(
            ConnectionTuneOk(
                channel_max=channels if most is None else min(channels, most),
                max_frame_size=size,
                heartbeat=choose_heartbeat(settings.heartbeat_s, tune),
            )
        )
        self.machine.send_control(
            ConnectionOpen(virtual_host=settings.vhost, capabilities=[], insist=settings.insist)
        )

    # --- asyncio.Protocol ---------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Handle input from the broker."""
        self._received_at = self._loop.time()
        self.machine.receive(data)
        if self.machine.pending():
            self.flush()

    def _say_goodbye(self) -> None:
        self.machine.send_control(ConnectionClose(reply_code=200, reply_text="Goodbye"))

    def _report(self) -> None:
        assert self._error is not None
        error = self._error
        if not isinstance(error, ConnectionLost | ConnectionClosed):
            error = ConnectionLost(str(error))
        users, self.users = self.users, {}  # They get the loss, not a detach.
        self.bridges.clear()
        self.machine.lost()
        for user in users.values():
            user.lost(error)
        super()._report()


def choose_heartbeat(wanted_s: int, tune: ConnectionTune) -> int | None:
    """Return the offered interval in seconds nearest to the wanted one; None for none."""
    if tune.heartbeat_min is None or not wanted_s:
        return None
    chosen = max(wanted_s, tune.heartbeat_min)
    if tune.heartbeat_max is not None:
        chosen = min(chosen, tune.heartbeat_max)
    return chosen or None
