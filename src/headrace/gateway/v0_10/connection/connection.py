# SPDX-License-Identifier: Apache-2.0
"""The broker's connection of a 0-10 client: opening, sessions, and the dispatch of commands.

Sessions outlive connections, so a client's state is kept in its sessions
(:mod:`headrace.gateway.v0_10.session.session`). The connection passes transfers and accepts to them
as offsets into the receive buffer, everything else as typed commands through the table of
:mod:`headrace.gateway.v0_10.handlers`.
"""

import logging
from collections.abc import Hashable
from typing import TYPE_CHECKING

import cython

if not cython.compiled:
    from headrace.gateway.v0_10.session.session import Session010
    from headrace.protocol.v0_10.connection.connection import Connection
    from headrace.protocol.v0_10.session.session import Session as ProtocolSession
    from headrace.protocol.v0_x.handshake import STATE_AUTHENTICATING, STATE_OPEN

from headrace.gateway.connection.context import CHANGES, is_durable_change, log_lost_connection
from headrace.gateway.v0_10.errors import translate
from headrace.gateway.v0_10.qpid_clients import is_qpid_client, suppresses_known_completed
from headrace.model.errors import ModelError
from headrace.model.queue_kinds.multi_queue import pooled_queues, unacked_holders
from headrace.protocol.codec_0_10 import (
    Command,
    ConnectionClose,
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
    ExecutionException,
    Struct,
)
from headrace.protocol.errors_0_10 import CloseError, DetachError, ExecutionError
from headrace.protocol.v0_x.handshake import Role
from headrace.spec.reply_0_10 import CloseCode, ExecutionCode

if TYPE_CHECKING:
    from headrace.gateway.connection.cluster_port import ClusterPort
    from headrace.gateway.messages.pending_confirms import PendingConfirms
    from headrace.gateway.security.user import User
    from headrace.gateway.v0_10.connection.context import Context010
    from headrace.gateway.v0_10.session.completion import Completion
    from headrace.gateway.v0_10.session.subscription import Subscription
    from headrace.model.ports import Store
    from headrace.protocol.endpoint import BodySink, DurableLog

log = logging.getLogger(__name__)

# The codes of exchange.declare and queue.declare; a passive declare is a query.
DECLARES = (0x0701, 0x0801)
# The errors that count as refusals: of a command, and of connection.open.
REFUSALS = (ExecutionCode.UNAUTHORIZED_ACCESS, ExecutionCode.RESOURCE_LOCKED)
REFUSALS_TO_OPEN = (CloseCode.INVALID_PATH, CloseCode.CONNECTION_FORCED)

FRAME_SIZE_MAX = 65535  # The bytes of the largest frame, whose size has 16 bits.
FRAME_SIZE_MIN = 4096
LOCALE = "en_US"


class Connection010(Connection):
    """A 0-10 client's connection at the broker."""

    def __init__(self, shared: "Context010", number: int, loopback: bool) -> None:
        context = shared.context
        Connection.__init__(
            self,
            Role.SERVER,
            pool=context.pool,
            max_frame_size=max(FRAME_SIZE_MIN, min(context.frame_max, FRAME_SIZE_MAX)),
            channel_max=context.channel_max,
            body_max=context.body_max,
            sessions=shared.sessions,
        )
        self.context = context
        self.shared = shared
        self.number = number
        self.loopback = loopback
        self.limit(context.output_max)
        self.reader.hold_above = 2 * context.output_max
        self.counters = context.counters
        # The store of its virtual host and the confirms that wait for it. connection.open sets
        # them, before any session attaches.
        self.store: Store = None  # type: ignore[assignment]
        self.pending_confirms: PendingConfirms = None  # type: ignore[assignment]
        self.mechanism = ""
        self.client_properties: dict[str, object] = {}
        self.is_from_qpid = False  # True for a client of the Qpid project.
        self.resumed: list[Session010] = []  # Detached sessions that this read attached again.
        self.unflushed: list[Completion] = []  # Completions with an open batch of this read.
        self.handlers = shared.handlers
        context.connections[number] = self

    # --- Opening --------------------------------------------------------------------------------

    # Keeps 0-10/s009, 0-10/s056.
    def on_header(self) -> None:
        """Send connection.start; en_US, the language of all error texts, is the only locale."""
        context = self.context
        self.send_control(
            ConnectionStart(
                server_properties=self.shared.server_properties_for(self),
                mechanisms=context.offered(self.number),
                locales=[LOCALE],
            )
        )

    def on_control(self, number: int, control: Control) -> None:
        if isinstance(control, ConnectionStartOk):
            self.start_ok(control)
        elif isinstance(control, ConnectionSecureOk):
            self.context.authenticate(self, self.mechanism, control.response or b"")
        elif isinstance(control, ConnectionTuneOk):
            if self.transport is not None:
                self.transport.set_heartbeat(control.heartbeat or 0)
        elif isinstance(control, ConnectionOpen):
            self.open_vhost(control)
        elif isinstance(control, ConnectionUpdateSecret):
            self.update_secret(control)

    def start_ok(self, control: ConnectionStartOk) -> None:
        """Record the properties of a client, and begin the login."""
        self.client_properties = dict(control.client_properties or {})
        self.is_from_qpid = is_qpid_client(self.client_properties)
        self.suppress_known_completed = suppresses_known_completed(self.client_properties)
        self.mechanism = control.mechanism or ""
        if control.locale and control.locale != LOCALE:
            log.info("connection %d: the client requests locale %.32r", self.number, control.locale)
        self.context.authenticate(self, self.mechanism, control.response or b"")

    def on_not_offered(self, mechanism: str) -> None:
        self.context.record_unknown_mechanism(self, mechanism)

    # Keeps 0-10/s014.
    def accept_login(self, user: "User") -> None:
        if self.ended or self.state_number != STATE_AUTHENTICATING:
            return
        self.user = user
        context = self.context
        heartbeat = context.heartbeat_s
        self.send_control(
            ConnectionTune(
                channel_max=min(context.channel_max, 0xFFFF),
                max_frame_size=self.offered_frame_size,
                heartbeat_min=0 if heartbeat else None,
                heartbeat_max=min(2 * heartbeat, 0xFFFF) if heartbeat else None,
            )
        )

    def update_secret(self, control: ConnectionUpdateSecret) -> None:
        """Check the new credentials of a client whose credentials expire."""
        renew = self.context.renew
        if renew is None or self.user.expires_s is None:
            self.send_control(ConnectionUpdateSecretOk())
        else:
            renew(self, control.new_secret or b"")

    def accept_secret(self, user: "User") -> None:
        """Accept renewed credentials; end sessions that they no longer allow."""
        if self.ended or self.state_number != STATE_OPEN:
            return
        self.user = user
        for session in list(self.attached.values()):
            broker_session: Session010 = cython.cast(Session010, session)
            broker_session.user = user
        self.counters.generation += 1  # Routes were made with the old permissions.
        self.send_control(ConnectionUpdateSecretOk())
        self.recheck()

    def refuse_secret(self) -> None:
        """Refuse renewed credentials; the exact reason is only logged."""
        if not self.ended:
            self.fail(
                CloseError(
                    CloseCode.CONNECTION_FORCED, "New secret was refused by one of the backends"
                )
            )

    def challenge(self, data: bytes) -> None:
        """Send a challenge of the SASL mechanism."""
        if not self.ended:
            self.send_control(ConnectionSecure(challenge=data))

    def refuse_login(self) -> None:
        if self.ended:
            return
        self.fail(
            CloseError(
                CloseCode.CONNECTION_FORCED,
                f"Login was refused using authentication mechanism {self.mechanism}",
            )
        )

    # Keeps 0-10/s024, 0-10/s025.
    def open_vhost(self, control: ConnectionOpen) -> None:
        """Open a virtual host; the default one if the control names none.

        A client may be redirected, unless it insists, and is sent the known hosts.
        """
        context = self.context
        name = control.virtual_host or self.shared.default_vhost
        offers = context.offers
        if not control.insist and name in offers.redirect:
            host, *others = offers.redirect[name].split(",")
            self.send_control(ConnectionRedirect(host=host, known_hosts=others))
            self.on_closed()
            return
        cluster = context.cluster
        is_known = context.access.vhost_exists(name) and self.user.may_open(name)
        if cluster is not None and is_known and not context.serves(name):
            self.open_elsewhere(name, control, cluster)
            return
        if name not in context.vhosts or not context.access.vhost_exists(name):
            raise CloseError(CloseCode.INVALID_PATH, f"vhost {name} not found")
        if not self.user.may_open(name):
            raise CloseError(
                CloseCode.CONNECTION_FORCED,
                f"access to vhost '{name}' refused for user '{self.user.name}'",
            )
        try:
            context.quotas.admit(self, context.vhosts[name])
        except ModelError as error:
            raise CloseError(CloseCode.CONNECTION_FORCED, error.text) from None
        self.vhost = context.vhosts[name]
        self.store = context.stores[name]
        self.pending_confirms = context.pending_confirms(name)
        if self.transport is not None:
            self.transport.stop_handshake_timer()
        context.connection_events.report_connection_opened(
            self, "0-10", context.frame_max, context.channel_max
        )
        self.send_control(ConnectionOpenOk(known_hosts=context.known_hosts(name)))

    # Keeps 0-10/s025.
    def open_elsewhere(self, name: str, control: ConnectionOpen, cluster: "ClusterPort") -> None:
        """Open a virtual host that another broker serves, or that no broker serves now."""
        broker = cluster.serving(name)
        if broker is None:
            cluster.wait(self, name, lambda: self.open_when_served(control))
        elif control.insist:
            reason = f"vhost '{name}' is served by broker '{broker.name}' at {broker}"
            raise CloseError(CloseCode.CONNECTION_FORCED, reason)
        else:
            hosts = [str(other) for other in cluster.brokers()]
            self.send_control(ConnectionRedirect(host=str(broker), known_hosts=hosts))
            self.on_closed()

    def open_when_served(self, control: ConnectionOpen) -> None:
        """Open the virtual host that the client waited for, which is served now."""
        try:
            self.open_vhost(control)
        except CloseError as error:
            self.fail(error)

    # --- Sessions -------------------------------------------------------------------------------

    def channel_count(self) -> int:
        """Return the number of attached sessions."""
        return len(self.attached)

    # Keeps 0-10/s035.
    def principal(self) -> Hashable:
        return self.user.source, self.user.name, self.vhost.name

    def find_session(self, number: int, name: bytes, force: bool) -> ProtocolSession:
        try:
            self.context.quotas.check_channel(self, 1)
        except ModelError as error:
            raise CloseError(CloseCode.CONNECTION_FORCED, error.text) from None
        self.shared.attaching = self
        return Connection.find_session(self, number, name, force)

    def on_attached(self, session: ProtocolSession) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.attach_to(self)
        self.context.connection_events.report_channel_opened(self, session.channel)
        if broker_session.completion.batch is not None:
            self.unflushed.append(broker_session.completion)
        subscription: Subscription
        for subscription in list(broker_session.subscriptions.values()):
            for holder in (subscription, *unacked_holders(subscription)):
                holder.publisher = self.number
            subscription.attach()
        if broker_session.subscriptions:
            self.resumed.append(broker_session)  # Its command-point comes before any delivery.
            self.recheck_session(broker_session)

    def on_resumed(self, session: ProtocolSession, kept: bool) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.refresh_all()

    def on_commands_lost(self, session: ProtocolSession, first_id: int, last_id: int) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.requeue_lost(first_id, last_id)

    def choose_timeout(self, session: ProtocolSession, requested: int | None) -> int | None:
        granted: int = self.shared.sessions.grant(requested)
        return granted

    def on_detaching(self, session: ProtocolSession) -> None:
        completion: Completion = cython.cast(Session010, session).completion
        if completion.failure is not None:
            completion.end_for_failure()  # The error cannot be sent after the detachment.

    def on_detached(self, session: ProtocolSession, channel: int, code: int) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.transfer_receiver.on_detached()
        self.context.connection_events.report_channel_closed(self, channel)

    def on_session_failed(self, session: ProtocolSession, error: ExecutionError) -> None:
        is_query = self.current in DECLARES and error.error_code is ExecutionCode.NOT_FOUND
        level = logging.INFO if is_query else logging.WARNING  # A query is not an error.
        log.log(level, "connection %d: session failed: %s", self.number, error)
        if error.error_code in REFUSALS:
            self.context.record_refusal(self, error.text)
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.release_resources()

    def recheck(self) -> None:
        """Fail sessions with subscriptions that changed permissions no longer allow."""
        for session in list(self.attached.values()):
            self.recheck_session(cython.cast(Session010, session))

    def recheck_session(self, session: Session010) -> None:
        """Fail a session with a subscription that its user may no longer have."""
        for subscription in list(session.subscriptions.values()):
            try:
                for queue in pooled_queues(subscription.queue):
                    session.check_access("read", "queue", queue.access_name)
            except ModelError as error:
                session.fail_subscription(subscription, translate(error))
                return

    # --- Commands -------------------------------------------------------------------------------

    def on_transfer(
        self,
        session: ProtocolSession,
        buffer: bytes | bytearray,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        body: int,
        body_end: int,
    ) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.transfer_receiver.publish(
            buffer, args, args_end, header, header_end, body, body_end
        )
        if (
            broker_session.transfer_receiver.transfer.route is None
            or not broker_session.transfer_receiver.transfer.route.is_served_by_broker
        ):
            self.publishes = True

    def on_transfer_large(
        self,
        session: ProtocolSession,
        start: bytes,
        args: int,
        args_end: int,
        header: int,
        header_end: int,
        parts: tuple[bytes, ...],
        body_size: int,
    ) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.transfer_receiver.publish_large(
            start, args, args_end, header, header_end, parts, body_size
        )
        if (
            broker_session.transfer_receiver.transfer.route is None
            or not broker_session.transfer_receiver.transfer.route.is_served_by_broker
        ):
            self.publishes = True

    def on_accept(
        self, session: ProtocolSession, buffer: bytes | bytearray, start: int, end: int
    ) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.accept(buffer, start, end)

    def on_completed(self, session: ProtocolSession, first_id: int, last_id: int) -> None:
        broker_session: Session010 = cython.cast(Session010, session)
        windows = broker_session.windows
        if windows.runs:
            windows.completed(first_id, last_id)

    def body_sink(self, session: ProtocolSession, header: bytes) -> "BodySink | None":
        sink = self.shared.commands.sink
        return None if sink is None else sink(cython.cast(Session010, session), header)

    def on_command(
        self, session: ProtocolSession, command: Command, header: bytes, parts: tuple[bytes, ...]
    ) -> None:
        self.current = command.CODE[0] << 8 | command.CODE[1]
        number = session.command_id
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.completion.close_batch()
        handler = self.handlers.get(command.NAME)
        if handler is None:
            raise ExecutionError(ExecutionCode.NOT_IMPLEMENTED, f"{command.NAME} is not served")
        events = self.context.events
        events.actor = self.user
        try:
            is_complete = handler(broker_session, command, header, parts)
        finally:
            events.actor = None
        if is_complete is not False:
            store = broker_session.store
            # Keeps 0-10/s044.
            if (
                store.defined_position > store.synced
                and command.NAME in CHANGES
                and is_durable_change(command)
            ):
                broker_session.completion.complete_change(self.current)
            else:
                session.complete(number)

    def fail_changes(self, store: "DurableLog") -> None:
        for session in list(self.attached.values()):
            if self.store is store:
                broker_session: Session010 = cython.cast(Session010, session)
                broker_session.fail_changes()

    def on_result(self, session: ProtocolSession, command_id: int, value: Struct | None) -> None:
        """Do nothing: the broker sends no commands that have results."""

    def on_exception(self, session: ProtocolSession, exception: ExecutionException) -> None:
        log.warning("connection %d: the client failed: %s", self.number, exception.description)
        broker_session: Session010 = cython.cast(Session010, session)
        broker_session.release_resources()

    def explain(self, error: Exception) -> CloseError | DetachError | ExecutionError:
        if isinstance(error, ModelError) and self.current:
            return translate(error)
        return Connection.explain(self, error)

    # --- Turns and output -----------------------------------------------------------------------

    def on_turn_end(self) -> None:
        if self.unflushed:
            waiting = self.unflushed
            self.unflushed = []
            completion: Completion
            for completion in waiting:
                completion.close_batch()
        if self.resumed:
            resumed = self.resumed
            self.resumed = []
            for session in resumed:
                if session.connection is self and not session.sent.is_resuming:
                    session.refresh_all()
        Connection.on_turn_end(self)

    def announce_later(self) -> None:
        """Announce the completion of a command, unless a read is handled, whose end does so."""
        if not self.reader.is_handling:
            self.announce()

    def has_unacked(self) -> bool:
        for session in list(self.attached.values()):
            if cython.cast(Session010, session).deliveries.unsettled.count:
                return True
        return False

    def on_output_drained(self) -> None:
        self.starving = None
        for session in list(self.attached.values()):
            broker_session: Session010 = cython.cast(Session010, session)
            broker_session.refresh_all()

    # --- The end of the connection --------------------------------------------------------------

    def force_close(self, reason: str) -> None:
        self.fail(CloseError(CloseCode.CONNECTION_FORCED, reason))

    def close_for_shutdown(self) -> None:
        if self.state_number == STATE_OPEN:
            self.send_control(
                ConnectionClose(
                    reply_code=CloseCode.CONNECTION_FORCED,
                    reply_text="broker forced connection closure with reason 'shutdown'",
                )
            )

    def on_failed(self, error: CloseError) -> None:
        log.warning("connection %d: %s", self.number, error)
        if self.vhost is None and error.close_code in REFUSALS_TO_OPEN:
            self.context.record_refusal(self, error.text)
        self.end()
        if self.transport is not None:
            self.transport.close_soon()

    def on_closed(self) -> None:
        self.end()
        if self.transport is not None:
            self.transport.close_soon()

    def end(self) -> None:
        if self.ended:
            if self.awaits_close():
                log_lost_connection(self.number, is_open=False)
            return
        self.ended = True
        if self.state_number == STATE_OPEN:
            log_lost_connection(self.number, is_open=True)
        self.on_turn_end()
        self.detach_all()
        self.starving = None
        self.shared.remove_states(self.number)
        self.context.remove_connection(self)
        if self.vhost is not None:
            self.vhost.on_connection_closed(self)
