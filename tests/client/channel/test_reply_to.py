# SPDX-License-Identifier: Apache-2.0
"""Direct reply-to: questions and answers without a queue, from every version to every version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.client import ClientError, Message, connect
from headrace.spec.tables import Version

if TYPE_CHECKING:
    from collections.abc import Callable

VERSIONS = [version.label for version in Version]
REPLY_TO = "amq.rabbitmq.reply-to"
every = pytest.mark.parametrize("version", VERSIONS)


@every
@pytest.mark.parametrize("other", VERSIONS)
async def test_an_answer_finds_who_asked(
    url: str, version: str, other: str, name: Callable[..., str]
) -> None:
    queue = name("questions")
    async with (
        connect(f"{url}?version={version}", reconnect=None) as asking,
        connect(f"{url}?version={other}", reconnect=None) as answering,
        asking.channel() as asker,
        answering.channel() as expert,
    ):
        await expert.declare_queue(queue)
        async with asker.consume(REPLY_TO, no_ack=True) as answers:
            for n in range(2):
                question = Message(b"%d?" % n, reply_to=REPLY_TO, correlation_id=str(n))
                await asker.publish(question, queue)
                request = await expert.get(queue)
                assert request is not None
                assert request.reply_to is not None
                assert request.reply_to.startswith(REPLY_TO + ".")
                await request.ack()
                answer = Message(b"%d!" % n, correlation_id=request.correlation_id)
                await expert.publish(answer, request.reply_to)
                heard = await anext(aiter(answers))
                assert (heard.body, heard.correlation_id) == (b"%d!" % n, str(n))
        gone = request.reply_to  # The name is valid as long as its consumer.
        with pytest.raises(ClientError):
            await expert.publish(Message(b"too late"), gone, mandatory=True)  # type: ignore[arg-type]


@every
async def test_a_request_needs_a_listener(url: str, version: str, name: Callable[..., str]) -> None:
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            await channel.declare_queue(name(version))
            with pytest.raises(ClientError, match="fast reply consumer does not exist"):
                await channel.publish(Message(b"?", reply_to=REPLY_TO), name(version))


@every
async def test_answers_cannot_be_acknowledged(url: str, version: str) -> None:
    async with connect(f"{url}?version={version}", reconnect=None) as connection:
        async with connection.channel() as channel:
            with pytest.raises(ClientError, match="reply consumer cannot acknowledge"):
                await channel.consume(REPLY_TO).start()
