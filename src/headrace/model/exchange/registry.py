# SPDX-License-Identifier: Apache-2.0
"""Exchange types by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from headrace.model.errors import CommandInvalid
from headrace.model.exchange.delayed import DelayedExchange
from headrace.model.exchange.direct import DirectExchange
from headrace.model.exchange.fanout import (
    DeduplicationExchange,
    FanoutExchange,
    RecentHistoryExchange,
)
from headrace.model.exchange.hash import ConsistentHashExchange, ModulusHashExchange
from headrace.model.exchange.headers import HeadersExchange
from headrace.model.exchange.random import LocalRandomExchange, RandomExchange
from headrace.model.exchange.super_stream import SuperStreamExchange
from headrace.model.exchange.topic import TopicExchange

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.model.exchange.exchange import Exchange, ExchangeProperties

# Keeps 0-9-1/s031, 0-9-1/exchange#01, 0-9-1/exchange#02, 0-9-1/exchange#06,
# 0-9/exchange#required-types, 0-9/exchange#recommended-types, 0-9/exchange#extensions, 0-10/s137,
# 0-10/s138, 0-10/s143.
TYPES: dict[str, type[Exchange]] = {
    kind.type: kind
    for kind in (
        DirectExchange,
        FanoutExchange,
        TopicExchange,
        HeadersExchange,
        SuperStreamExchange,
        ConsistentHashExchange,
        ModulusHashExchange,
        RandomExchange,
        LocalRandomExchange,
        DelayedExchange,
        RecentHistoryExchange,
        DeduplicationExchange,
    )
}
DelayedExchange.register_types(TYPES)


# Keeps 0-9-1/s041, 0-9/exchange.declare.type#support.
def exchange_type(type_: str) -> type[Exchange]:
    """Return the class of an exchange type.

    Raises:
        CommandInvalid: the type does not exist.
    """
    kind = TYPES.get(type_)
    if kind is None:
        raise CommandInvalid(f"unknown exchange type '{type_}'")
    return kind


def new_exchange(type_: str, name: str, **properties: Unpack[ExchangeProperties]) -> Exchange:
    """Return a new exchange.

    Raises:
        CommandInvalid: the type does not exist.
    """
    return exchange_type(type_)(name, **properties)


def known_arguments(type_: str, arguments: Mapping[str, object]) -> dict[str, object]:
    """Return the arguments that have a meaning for an exchange of a type."""
    kind = exchange_type(type_)
    return {
        name: value
        for name, value in arguments.items()
        if name in kind.arguments_known or name in kind.ignored_arguments
    }
