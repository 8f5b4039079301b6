# SPDX-License-Identifier: Apache-2.0
"""A client for AMQP brokers, for asyncio; `headrace.client.blocking` is its blocking twin."""

from headrace.client.channel.batch import Transaction
from headrace.client.channel.channel import Channel
from headrace.client.channel.consumer import Consumer
from headrace.client.channel.declarations import QueueState
from headrace.client.channel.delivery import Delivery
from headrace.client.channel.native_methods import Arrived
from headrace.client.connection.connection import Connection, connect
from headrace.client.connection.reconnect import Reconnect
from headrace.client.content_classes.files import FileDelivery, Files
from headrace.client.content_classes.message_class_0_9 import Messages, Reference, Transferred
from headrace.client.content_classes.session_files import SessionFile, SessionFiles
from headrace.client.errors import (
    AccessRefused,
    AuthenticationFailed,
    BufferOverflow,
    ChannelClosed,
    ClientError,
    Closed,
    ConfirmLost,
    ConnectFailed,
    ConnectionClosed,
    ConnectionLost,
    ConsumerCancelled,
    InvalidUrl,
    Nacked,
    NotFound,
    OffsetGone,
    PreconditionFailed,
    ProtocolViolation,
    PublishFailed,
    ResourceLocked,
    Returned,
    UsageError,
)
from headrace.client.events import Blocked, Event, Lost, Recovered, Unblocked
from headrace.client.message import Message, Received
from headrace.client.session.session import Session
from headrace.client.session.subscription import Subscription, Transfer
from headrace.client.stream.reader import Record
from headrace.client.stream.stream import Stream
from headrace.client.url import Settings, parse_url, parse_urls

__all__ = [
    "AccessRefused",
    "Arrived",
    "AuthenticationFailed",
    "Blocked",
    "BufferOverflow",
    "Channel",
    "ChannelClosed",
    "ClientError",
    "Closed",
    "ConfirmLost",
    "ConnectFailed",
    "Connection",
    "ConnectionClosed",
    "ConnectionLost",
    "Consumer",
    "ConsumerCancelled",
    "Delivery",
    "Event",
    "FileDelivery",
    "Files",
    "InvalidUrl",
    "Lost",
    "Message",
    "Messages",
    "Nacked",
    "NotFound",
    "OffsetGone",
    "PreconditionFailed",
    "ProtocolViolation",
    "PublishFailed",
    "QueueState",
    "Received",
    "Reconnect",
    "Record",
    "Recovered",
    "Reference",
    "ResourceLocked",
    "Returned",
    "Session",
    "SessionFile",
    "SessionFiles",
    "Settings",
    "Stream",
    "Subscription",
    "Transaction",
    "Transfer",
    "Transferred",
    "Unblocked",
    "UsageError",
    "connect",
    "parse_url",
    "parse_urls",
]
