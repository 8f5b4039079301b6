# SPDX-License-Identifier: Apache-2.0
"""The exchange class of 0-10: declare, delete, query, bind, unbind, bound."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.client.blocking import connect
from headrace.client.errors import PreconditionFailed
from headrace.protocol.codec_0_10 import (
    Command,
    ExchangeBind,
    ExchangeBound,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeQuery,
    ExchangeUnbind,
    QueueDeclare,
    QueueQuery,
)
from headrace.testing.broker import LocalBroker
from support.clients.command_client_0_10 import Talk, depth, failed

if TYPE_CHECKING:
    from headrace.testing.raw_session import RawSession

rule = pytest.mark.rule


# --- Types and instances ----------------------------------------------------------------------


@rule("0-10/s137", "0-10/s138")
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_every_standard_type_can_be_declared(session: RawSession, name: str, kind: str) -> None:
    session.call(ExchangeDeclare(exchange=name, type=kind))
    assert session.call(ExchangeQuery(name=name)).type == kind


@rule("0-10/s143")
@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-random"])
def test_further_types_can_be_declared(session: RawSession, name: str, kind: str) -> None:
    session.call(ExchangeDeclare(exchange=name, type=kind))
    assert session.call(ExchangeQuery(name=name)).type == kind


@rule("0-10/s139", "0-10/s140")
@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_an_instance_of_each_type_is_there(session: RawSession, kind: str) -> None:
    found = session.call(ExchangeQuery(name=f"amq.{kind}"))
    assert (found.type, found.durable, found.not_found) == (kind, True, False)


@rule("0-10/s140", "0-10/s141", "0-10/s176")
def test_the_default_exchange_is_direct_and_knows_every_queue(
    session: RawSession, queue: str
) -> None:
    assert session.call(ExchangeQuery(name="")).type == "direct"
    bound = session.call(ExchangeBound(exchange="", queue=queue, binding_key=queue))
    assert not (bound.queue_not_matched)
    assert not (bound.key_not_matched)
    session.publish(b"x", queue)
    assert depth(session, queue) == 1


@rule("0-10/s142")
@pytest.mark.parametrize(
    "command",
    [
        ExchangeBind(queue="q", exchange="", binding_key="k"),
        ExchangeUnbind(queue="q", exchange="", binding_key="k"),
        ExchangeDelete(exchange=""),
        ExchangeDeclare(exchange="", type="direct"),
    ],
)
def test_the_default_exchange_is_for_publishing_only(session: RawSession, command: Command) -> None:
    failed(session, command, 542, "exchange")


@rule("0-10/s144")
def test_there_can_be_many_exchanges(session: RawSession, name: str) -> None:
    for number in range(20):
        session.send(ExchangeDeclare(exchange=f"{name}-{number}", type="fanout"))
    assert not session.call(ExchangeQuery(name=f"{name}-19")).not_found


# --- Declare ----------------------------------------------------------------------------------


@rule("0-10/s145")
def test_names_that_begin_with_amq_are_reserved(session: RawSession) -> None:
    failed(session, ExchangeDeclare(exchange="amq.mine", type="direct"), 530, "exchange")


@rule("0-10/s146")
def test_an_exchange_has_a_name(session: RawSession) -> None:
    failed(session, ExchangeDeclare(type="direct"), 542, "exchange")


@rule("0-10/s147")
def test_the_type_of_an_exchange_does_not_change(session: RawSession, name: str) -> None:
    session.call(ExchangeDeclare(exchange=name, type="direct"))
    failed(session, ExchangeDeclare(exchange=name, type="fanout"), 530, "type")


@rule("0-10/s148")
def test_an_unknown_type_is_an_error(session: RawSession, name: str) -> None:
    failed(session, ExchangeDeclare(exchange=name, type="conical"), 404, "type")


@rule("0-10/s149")
def test_without_an_alternate_exchange_an_unroutable_message_is_dropped(
    session: RawSession, name: str
) -> None:
    session.call(ExchangeDeclare(exchange=name, type="direct", alternate_exchange=""))
    session.publish(b"x", "nowhere", exchange=name)
    session.call(ExchangeQuery(name=name))
    assert not session.commands


@rule("0-10/s150")
def test_the_alternate_exchange_does_not_change(session: RawSession, name: str) -> None:
    session.call(ExchangeDeclare(exchange=name, type="direct", alternate_exchange="amq.fanout"))
    session.call(ExchangeDeclare(exchange=name, type="direct"))
    session.call(ExchangeDeclare(exchange=name, type="direct", alternate_exchange="amq.fanout"))
    failed(
        session,
        ExchangeDeclare(exchange=name, type="direct", alternate_exchange="amq.topic"),
        530,
        "alternate_exchange",
    )


@pytest.mark.parametrize("declare", [ExchangeDeclare, QueueDeclare])
def test_an_argument_may_name_the_alternate_exchange_but_no_other_one(
    session: RawSession, name: str, declare: type[Any]
) -> None:
    what = {"exchange": name, "type": "direct"} if declare is ExchangeDeclare else {"queue": name}
    arguments: dict[str, Any] = {"alternate-exchange": "amq.fanout"}
    for alternate in "amq.fanout", "":
        session.call(declare(**what, alternate_exchange=alternate, arguments=arguments))
    command = declare(**what, alternate_exchange="amq.topic", arguments=arguments)
    failed(session, command, 542, "arguments")


@rule("0-10/s151", "0-10/s152")
def test_there_is_no_alternate_of_an_alternate(session: RawSession, name: str, queue: str) -> None:
    session.call(ExchangeDeclare(exchange=name + "3", type="fanout"))
    session.call(ExchangeBind(queue=queue, exchange=name + "3", binding_key=""))
    for number, next_one in ((2, "3"), (1, "2")):
        session.call(
            ExchangeDeclare(
                exchange=f"{name}{number}", type="direct", alternate_exchange=name + next_one
            )
        )
    session.publish(b"one step", "k", exchange=name + "2")
    assert depth(session, queue) == 1
    session.publish(b"two steps", "k", exchange=name + "1")
    assert depth(session, queue) == 1


@rule("0-10/s153")
def test_passive_wants_the_exchange_to_be_there(session: RawSession, name: str) -> None:
    session.call(ExchangeDeclare(exchange="amq.direct", type="direct", passive=True))
    failed(session, ExchangeDeclare(exchange=name, type="direct", passive=True), 404, "exchange")


@rule("0-10/s155", "0-10/s156")
def test_durable_and_auto_delete_are_ignored_of_what_exists(session: RawSession, name: str) -> None:
    session.call(ExchangeDeclare(exchange=name, type="direct"))
    session.call(ExchangeDeclare(exchange=name, type="direct", durable=True, auto_delete=True))
    assert not session.call(ExchangeQuery(name=name)).durable


@rule("0-10/s157")
def test_unknown_arguments_of_an_exchange_are_refused(session: RawSession, name: str) -> None:
    command = ExchangeDeclare(exchange=name, type="direct", arguments={"what.is.this": 1})
    failed(session, command, 540, "arguments")


def test_unknown_arguments_are_ignored_where_the_setting_says_so() -> None:
    with LocalBroker(specification_arguments=False) as lenient:
        talk = Talk(lenient.port)
        session = talk.attach()
        session.call(ExchangeDeclare(exchange="x", type="direct", arguments={"strange": 1}))
        session.call(QueueDeclare(queue="q", arguments={"strange": 1}))
        session.call(
            ExchangeBind(queue="q", exchange="x", binding_key="k", arguments={"strange": 1})
        )
        talk.close()


@rule("0-10/s154", "0-10/s164", "0-10/s183", "0-10/s184")
def test_what_is_durable_survives_a_restart_with_its_bindings(tmp_path: Path) -> None:
    with LocalBroker(tmp_path) as first:
        talk = Talk(first.port)
        session = talk.attach()
        for durable, name in ((True, "kept"), (False, "lost")):
            session.call(ExchangeDeclare(exchange=name, type="direct", durable=durable))
            session.call(QueueDeclare(queue=name, durable=durable))
        session.call(ExchangeBind(queue="kept", exchange="kept", binding_key="k"))
        session.publish(b"x", "k", exchange="kept", delivery_mode=2)
        talk.close()
    with LocalBroker(tmp_path) as second:
        talk = Talk(second.port)
        session = talk.attach()
        assert session.call(ExchangeQuery(name="lost")).not_found
        assert session.call(QueueQuery(queue="lost")).queue is None
        assert session.call(ExchangeQuery(name="kept")).durable
        bound = session.call(ExchangeBound(exchange="kept", queue="kept", binding_key="k"))
        assert not (bound.queue_not_matched)
        assert not (bound.key_not_matched)
        assert session.call(QueueQuery(queue="kept")).message_count == 1
        talk.close()


# --- Delete -----------------------------------------------------------------------------------


@rule("0-10/s158")
def test_what_is_not_there_cannot_be_deleted(session: RawSession, name: str) -> None:
    failed(session, ExchangeDelete(exchange=name), 404, "exchange")


@rule("0-10/s159")
@pytest.mark.parametrize("command", [ExchangeDelete(), ExchangeDelete(exchange="")])
def test_a_delete_names_an_exchange(session: RawSession, command: Command) -> None:
    failed(session, command, 542, "exchange")


@rule("0-10/s160")
@pytest.mark.parametrize("user", ["queue", "exchange"])
def test_an_alternate_exchange_stays_while_it_is_one(
    session: RawSession, name: str, user: str
) -> None:
    session.call(ExchangeDeclare(exchange=name, type="fanout"))
    if user == "queue":
        session.call(QueueDeclare(queue=name, alternate_exchange=name))
    else:
        session.call(ExchangeDeclare(exchange=name + "2", type="fanout", alternate_exchange=name))
    failed(session, ExchangeDelete(exchange=name), 530, "exchange")


@rule("0-10/s161")
def test_if_unused_keeps_an_exchange_with_bindings(
    session: RawSession, name: str, queue: str
) -> None:
    session.call(ExchangeDeclare(exchange=name, type="fanout"))
    session.call(ExchangeDelete(exchange=name, if_unused=True))
    session.call(ExchangeDeclare(exchange=name, type="fanout"))
    session.call(ExchangeBind(queue=queue, exchange=name, binding_key="k"))
    failed(session, ExchangeDelete(exchange=name, if_unused=True), 406, "if_unused")


# --- Bind and unbind --------------------------------------------------------------------------


@rule("0-10/s162")
def test_binding_twice_is_no_error_and_delivers_once(session: RawSession, queue: str) -> None:
    for _ in range(2):
        session.call(ExchangeBind(queue=queue, exchange="amq.direct", binding_key=queue))
    session.publish(b"x", queue, exchange="amq.direct")
    assert depth(session, queue) == 1


@rule("0-10/s163")
def test_arguments_of_a_binding_do_not_change(session: RawSession, queue: str) -> None:
    first, second = {"x-match": "all", "a": 1}, {"x-match": "all", "a": 2}
    for arguments in (first, second):
        session.call(
            ExchangeBind(queue=queue, exchange="amq.headers", binding_key="k", arguments=arguments)  # type: ignore[arg-type]
        )
    kept = session.call(ExchangeBound(exchange="amq.headers", queue=queue, arguments=first))  # type: ignore[arg-type]
    assert not kept.args_not_matched
    other = session.call(ExchangeBound(exchange="amq.headers", queue=queue, arguments=second))  # type: ignore[arg-type]
    assert other.args_not_matched


@rule("0-10/s165")
def test_a_queue_has_many_bindings(session: RawSession, queue: str) -> None:
    keys = [f"{queue}-{number}" for number in range(10)]
    for key in keys:
        session.call(ExchangeBind(queue=queue, exchange="amq.direct", binding_key=key))
    for key in keys:
        session.publish(b"x", key, exchange="amq.direct")
    assert depth(session, queue) == 10


@rule("0-10/s166")
@pytest.mark.parametrize("missing", ["", None])
def test_a_bound_queue_has_a_name(session: RawSession, missing: str | None) -> None:
    command = ExchangeBind(queue=missing, exchange="amq.direct", binding_key="k")
    failed(session, command, 542, "queue")


@rule("0-10/s167")
def test_a_bound_queue_exists(session: RawSession) -> None:
    command = ExchangeBind(queue="missing", exchange="amq.direct", binding_key="k")
    failed(session, command, 404, "queue")


@rule("0-10/s168")
def test_a_queue_is_bound_to_an_exchange_that_exists(session: RawSession, queue: str) -> None:
    failed(session, ExchangeBind(queue=queue, exchange="no", binding_key="k"), 404, "exchange")


@rule("0-10/s169")
def test_a_queue_is_bound_to_an_exchange_with_a_name(session: RawSession, queue: str) -> None:
    failed(session, ExchangeBind(queue=queue, exchange="", binding_key="k"), 542, "exchange")


@rule("0-10/s170")
def test_unknown_arguments_of_a_binding_are_refused(session: RawSession, queue: str) -> None:
    command = ExchangeBind(
        queue=queue, exchange="amq.direct", binding_key="k", arguments={"what.is.this": 1}
    )
    failed(session, command, 540, "arguments")


@rule("0-10/s171")
def test_an_unbound_queue_exists(session: RawSession) -> None:
    command = ExchangeUnbind(queue="missing", exchange="amq.direct", binding_key="k")
    failed(session, command, 404, "queue")


@rule("0-10/s172")
def test_a_queue_is_unbound_from_an_exchange_that_exists(session: RawSession, queue: str) -> None:
    failed(session, ExchangeUnbind(queue=queue, exchange="no", binding_key="k"), 404, "exchange")


@rule("0-10/s173")
def test_a_queue_is_unbound_from_an_exchange_with_a_name(session: RawSession, queue: str) -> None:
    failed(session, ExchangeUnbind(queue=queue, exchange="", binding_key="k"), 542, "exchange")


@rule("0-10/s174")
def test_only_what_is_bound_can_be_unbound(session: RawSession, queue: str) -> None:
    session.call(ExchangeBind(queue=queue, exchange="amq.topic", binding_key="a.#"))
    session.call(ExchangeUnbind(queue=queue, exchange="amq.topic", binding_key="a.#"))
    session.publish(b"x", "a.b", exchange="amq.topic")
    assert depth(session, queue) == 0
    command = ExchangeUnbind(queue=queue, exchange="amq.topic", binding_key="a.#")
    failed(session, command, 404, "binding_key")


# --- Bound ------------------------------------------------------------------------------------


def test_bound_says_what_is_missing(session: RawSession, queue: str) -> None:
    other = f"{queue}-other"
    session.call(QueueDeclare(queue=other))
    session.call(ExchangeBind(queue=queue, exchange="amq.direct", binding_key=queue))
    session.call(ExchangeBind(queue=other, exchange="amq.direct", binding_key=other))

    def ask(**how: str) -> set[str]:
        result = session.call(ExchangeBound(**how))  # type: ignore[arg-type]  # By name.
        bits = ("exchange_not_found", "queue_not_found", "queue_not_matched", "key_not_matched")
        return {bit for bit in bits if getattr(result, bit)}

    assert ask(exchange="amq.direct", queue=queue, binding_key=queue) == set()
    assert ask(exchange="amq.direct", queue=queue) == set()
    assert ask(exchange="amq.direct", binding_key=queue) == set()
    assert ask(exchange="no", queue="no") == {"exchange_not_found", "queue_not_found"}
    assert ask(exchange="no", queue=queue) == {"exchange_not_found"}
    assert ask(exchange="amq.fanout", queue="no") == {"queue_not_found"}
    assert ask(exchange="amq.fanout", queue=queue) == {"queue_not_matched"}
    assert ask(exchange="amq.direct", queue=queue, binding_key=other) == {"key_not_matched"}
    assert ask(exchange="amq.fanout", queue=queue, binding_key="k") == {
        "queue_not_matched",
        "key_not_matched",
    }


# --- Between versions -------------------------------------------------------------------------


def test_an_alternate_exchange_is_the_same_in_every_version(
    broker: LocalBroker, session: RawSession, name: str, queue: str
) -> None:
    session.call(ExchangeDeclare(exchange=name, type="direct", alternate_exchange="amq.fanout"))
    session.call(QueueDeclare(queue=name, alternate_exchange=name))
    with connect(broker.url) as connection, connection.channel() as channel:
        arguments: dict[str, Any] = {"alternate-exchange": "amq.fanout"}
        channel.declare_exchange(name, "direct", durable=False, arguments=arguments)
        arguments: dict[str, Any] = {"alternate-exchange": name}  # type: ignore[no-redef]
        channel.declare_queue(name, durable=False, arguments=arguments)
        with pytest.raises(PreconditionFailed):
            channel.declare_queue(name, durable=False)
