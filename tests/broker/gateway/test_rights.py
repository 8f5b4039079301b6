# SPDX-License-Identifier: Apache-2.0
"""Methods without permission are refused on the channel, with the name of the missing one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pika
import pika.exceptions
import pytest

from headrace.protocol.codec_0_x import (
    BasicConsume,
    BasicGet,
    BasicProperties,
    BasicPublish,
    ConnectionClose,
    ConnectionOpen,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    MethodBase,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueueUnbind,
)
from headrace.spec.tables import V0_9_1
from headrace.testing.raw_client import RawClient, start_ok
from support.brokers.broker_process import Served
from support.command_line import on_data

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A broker whose user `ada` has rights to names that begin with `mine`, and `amq.topic`."""
    home = tmp_path_factory.mktemp("rights")
    broker = Served(home).start()
    broker.stop()
    data = home / "data"
    on_data(data, "user", "add", "ada", "--password", "secret")
    rights = ("^mine", "^mine|^amq.topic$", "^mine|^amq.topic$")
    on_data(data, "permission", "set", "ada", *rights)
    on_data(data, "user", "add", "nobody", "--password", "secret")
    on_data(data, "vhost", "add", "closed")
    broker.start()
    with RawClient(broker.host, broker.port) as guest:
        guest.open_connection().channel(1)
        for queue in ("mine", "theirs"):
            guest.send(QueueDeclare(queue=queue))
            guest.expect(QueueDeclareOk)
        guest.send(ExchangeDeclare(exchange="theirs", type="fanout"))
        guest.expect(ExchangeDeclareOk)
        guest.send(ExchangeDeclare(exchange="mine", type="fanout"))
        guest.expect(ExchangeDeclareOk)
    yield broker
    broker.end()


@pytest.fixture
def ada(served: Served) -> Iterator[RawClient]:
    with RawClient(served.host, served.port) as connection:
        yield connection.open_connection("ada", "secret").channel(1)


REFUSED: list[tuple[MethodBase, str]] = [
    (QueueDeclare(queue="other"), "configure access to queue 'other'"),
    (QueueDelete(queue="theirs"), "configure access to queue 'theirs'"),
    (QueuePurge(queue="theirs"), "read access to queue 'theirs'"),
    (BasicConsume(queue="theirs"), "read access to queue 'theirs'"),
    (
        BasicConsume(arguments={"x-multiqueue": ["mine", "theirs"]}),
        "read access to queue 'theirs'",
    ),
    (BasicGet(queue="theirs"), "read access to queue 'theirs'"),
    (QueueBind(queue="theirs", exchange="amq.topic"), "write access to queue 'theirs'"),
    (QueueBind(queue="mine", exchange="theirs"), "read access to exchange 'theirs'"),
    (QueueUnbind(queue="theirs", exchange="amq.topic"), "write access to queue 'theirs'"),
    (QueueUnbind(queue="mine", exchange="theirs"), "read access to exchange 'theirs'"),
    (ExchangeDeclare(exchange="other", type="direct"), "configure access to exchange 'other'"),
    (ExchangeDelete(exchange="theirs"), "configure access to exchange 'theirs'"),
    (ExchangeBind(destination="theirs", source="mine"), "write access to exchange 'theirs'"),
    (ExchangeBind(destination="mine", source="theirs"), "read access to exchange 'theirs'"),
    (
        QueueDeclare(queue="mine-dlx", arguments={"x-dead-letter-exchange": "theirs"}),
        "write access to exchange 'theirs'",
    ),
    (
        ExchangeDeclare(
            exchange="mine-ae", type="direct", arguments={"alternate-exchange": "theirs"}
        ),
        "write access to exchange 'theirs'",
    ),
]


@pytest.mark.parametrize(
    ("method", "what"), REFUSED, ids=[f"{method.NAME}: {what}" for method, what in REFUSED]
)
def test_what_is_not_permitted_is_refused(ada: RawClient, method: MethodBase, what: str) -> None:
    ada.send(method, 1)
    closed = (
        ada.expect_connection_close
        if isinstance(method, QueueUnbind)
        else partial(ada.expect_channel_close, 1)
    )  # 0-9-1/queue.unbind#01
    assert closed() == (
        403,
        f"ACCESS_REFUSED - {what} in vhost '/' refused for user 'ada'",
        method.INDEX[V0_9_1],
    )


@pytest.mark.parametrize(("exchange", "said"), [("theirs", "theirs"), ("", "amq.default")])
def test_publishing_needs_write_access(ada: RawClient, exchange: str, said: str) -> None:
    method = BasicPublish(exchange=exchange, routing_key="theirs")
    ada.send_bytes(ada.content_frames(method, BasicProperties(), b"") * 2)
    assert ada.expect_channel_close(1) == (
        403,
        f"ACCESS_REFUSED - write access to exchange '{said}' in vhost '/' refused for user 'ada'",
        (60, 40),
    )


def test_pika_hears_it_in_the_words_that_it_knows(served: Served) -> None:
    credentials = pika.PlainCredentials("ada", "secret")
    parameters = pika.ConnectionParameters(served.host, served.port, credentials=credentials)
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare("mine", passive=True)
        for act, what in (
            (lambda it: it.queue_declare("other"), "configure access to queue 'other'"),
            (lambda it: it.basic_consume("theirs", print), "read access to queue 'theirs'"),
            (lambda it: it.queue_bind("mine", "theirs"), "read access to exchange 'theirs'"),
        ):
            with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
                act(connection.channel())
            assert closed.value.reply_code == 403
            assert closed.value.reply_text == (
                f"ACCESS_REFUSED - {what} in vhost '/' refused for user 'ada'"
            )


def test_what_is_permitted_is_done(ada: RawClient) -> None:
    ada.send(QueueDeclare(queue="mine-too"))
    ada.expect(QueueDeclareOk)
    ada.send(QueueBind(queue="mine-too", exchange="amq.topic", routing_key="#"))
    ada.expect(QueueBindOk)
    ada.publish("x", b"", exchange="amq.topic")
    ada.send(QueueDelete(queue="mine-too"))
    assert ada.expect(QueueDeleteOk).message_count == 1


def test_asking_whether_something_exists_needs_any_right_to_it(ada: RawClient) -> None:
    ada.send(ExchangeDeclare(exchange="amq.topic", passive=True))  # She may write and read.
    ada.expect(ExchangeDeclareOk)
    ada.send(QueueDeclare(queue="mine", passive=True))
    ada.expect(QueueDeclareOk)
    ada.send(QueueDeclare(queue="theirs", passive=True))
    assert ada.expect_channel_close(1).code == 403
    ada.channel(1).send(QueueDeclare(queue="not-there", passive=True))
    assert ada.expect_channel_close(1).code == 403  # The same: who may not ask learns nothing.


@pytest.mark.rule("0-9-1/s021")
@pytest.mark.parametrize(("user", "vhost"), [("ada", "closed"), ("nobody", "/")])
def test_a_virtual_host_without_rights_is_closed(served: Served, user: str, vhost: str) -> None:
    with RawClient(served.host, served.port) as raw:
        raw.tune(user, "secret")
        raw.send(ConnectionOpen(virtual_host=vhost))
        assert raw.expect_connection_close()[:2] == (
            530,
            f"NOT_ALLOWED - access to vhost '{vhost}' refused for user '{user}'",
        )


def test_a_password_is_not_in_the_log(served: Served) -> None:
    with RawClient(served.host, served.port) as raw:
        raw.greet()
        raw.send(start_ok("ada", "a-wrong-secret"))
        raw.expect(ConnectionClose)
    assert "a-wrong-secret" not in served.log()
