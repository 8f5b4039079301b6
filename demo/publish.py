# SPDX-License-Identifier: Apache-2.0
"""An ordinary pika program that publishes all flights, persistent, and waits for their confirms.

    python -m demo.publish URL EXCHANGE

It prints the number of confirmed messages, a line at a time, and ends with status 0 after the last
confirm.
"""

from __future__ import annotations

import sys
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

import pika
from pika.adapters.select_connection import SelectConnection

from demo.flights import format_json, read_flights

if TYPE_CHECKING:
    from pika.channel import Channel
    from pika.exceptions import AMQPError
    from pika.frame import Method

UNCONFIRMED_MAX = 4000
CHUNK = 200  # Messages published between two reads of confirms.
REPORT_EVERY_S = 0.2
PROPERTIES = pika.BasicProperties(
    content_type="application/json", delivery_mode=pika.DeliveryMode.Persistent.value
)


class Publisher:
    """A publisher of `messages`, pairs of routing key and body, that counts their confirms."""

    def __init__(self, url: str, exchange: str, messages: list[tuple[str, bytes]]) -> None:
        self.exchange = exchange
        self.messages = messages
        self.confirmed = 0
        self.failure = ""
        self.unconfirmed: OrderedDict[int, None] = OrderedDict()  # Delivery tags, oldest first.
        self.is_waiting = False  # True while too many messages are unconfirmed.
        self.published = 0
        self.last_report_s = 0.0
        self.channel: Channel | None = None
        self.connection = SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(
                on_open_callback=self.on_channel_open
            ),
            on_open_error_callback=lambda _, error: self.fail(f"cannot connect: {error!r}"),
            on_close_callback=self.on_close,
        )

    def run(self) -> None:
        """Publish all messages and wait for all confirms, or for a failure."""
        self.connection.ioloop.start()

    def on_channel_open(self, channel: Channel) -> None:
        self.channel = channel
        channel.add_on_close_callback(lambda _, reason: self.fail(f"channel closed: {reason!r}"))
        channel.add_on_return_callback(
            lambda _, method, *_rest: self.fail(f"not routed: {method.routing_key}")
        )
        channel.confirm_delivery(self.on_confirm, callback=lambda _: self.publish())

    def publish(self) -> None:
        """Publish a chunk; the loop reads confirms before it publishes the next chunk."""
        if self.channel is None or not self.channel.is_open:
            return
        for routing_key, body in self.messages[self.published : self.published + CHUNK]:
            self.channel.basic_publish(self.exchange, routing_key, body, PROPERTIES, mandatory=True)
            self.published += 1
            self.unconfirmed[self.published] = None
        if self.published == len(self.messages):
            return
        if len(self.unconfirmed) < UNCONFIRMED_MAX:
            self.connection.ioloop.add_callback_threadsafe(self.publish)
        else:
            self.is_waiting = True

    def on_confirm(self, frame: Method) -> None:
        """Count an ack, which may confirm several messages; fail for a nack."""
        method = frame.method
        if isinstance(method, pika.spec.Basic.Nack):
            self.fail(f"the broker refused message {method.delivery_tag}")
            return
        if method.multiple:
            while self.unconfirmed and next(iter(self.unconfirmed)) <= method.delivery_tag:
                self.unconfirmed.popitem(last=False)
                self.confirmed += 1
        elif method.delivery_tag in self.unconfirmed:
            del self.unconfirmed[method.delivery_tag]
            self.confirmed += 1
        self.report()
        if self.confirmed == len(self.messages):
            self.connection.close()
        elif self.is_waiting and len(self.unconfirmed) <= UNCONFIRMED_MAX // 2:
            self.is_waiting = False
            self.publish()

    def report(self) -> None:
        """Print the number of confirmed messages, at most every `REPORT_EVERY_S` seconds."""
        now_s = time.monotonic()
        if now_s - self.last_report_s >= REPORT_EVERY_S or self.confirmed == len(self.messages):
            self.last_report_s = now_s
            print(self.confirmed, flush=True)

    def fail(self, reason: str) -> None:
        """Keep the first reason of a failure, and end the loop."""
        if self.confirmed < len(self.messages):
            self.failure = self.failure or reason
        if self.connection.is_open:
            self.connection.close()
        elif not (self.connection.is_closing or self.connection.is_closed):
            self.connection.ioloop.stop()

    def on_close(self, connection: SelectConnection, reason: AMQPError) -> None:
        if self.confirmed < len(self.messages):
            self.failure = self.failure or f"connection closed: {reason!r}"
        connection.ioloop.stop()


def main() -> int:
    url, exchange = sys.argv[1:]
    frame = read_flights()
    keys = [
        f"flights.{origin}.{carrier}"
        for origin, carrier in zip(frame.origin, frame.carrier, strict=True)
    ]
    publisher = Publisher(url, exchange, list(zip(keys, format_json(frame), strict=True)))
    del frame
    print("ready", flush=True)
    publisher.run()
    if publisher.failure:
        print(publisher.failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
