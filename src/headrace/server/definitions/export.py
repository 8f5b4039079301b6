# SPDX-License-Identifier: Apache-2.0
"""Export of definitions, element by element."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from headrace import __version__
from headrace.model.arguments.values import queue_type
from headrace.model.exchange.binding import EXCHANGE, QUEUE
from headrace.model.exchange.exchange import Exchange
from headrace.model.policy.effective_arguments import is_own
from headrace.model.policy.parameters import EVERYWHERE, Key
from headrace.model.policy.policy import COMPONENT as POLICY
from headrace.model.policy.rules import GLOBAL, METADATA, USER_LIMITS, metadata_key
from headrace.model.vhost.topology import RESERVED_PREFIX
from headrace.server.definitions.elements import (
    ARGON2ID,
    ARGON2ID_PREFIX,
    FOREIGN_HASHES,
    SCRAM_FIELD,
)
from headrace.server.definitions.typed_arguments import argument_fields

if TYPE_CHECKING:
    from headrace.model.policy.accounts import Account, ScramKeys, Snapshot
    from headrace.model.queue.queue import Queue
    from headrace.model.vhost.virtual_host import VirtualHost
    from headrace.server.definitions.target import Target

COMPATIBLE = "3.13.0"  # The version of RabbitMQ with this format; its importers check it.
PRODUCT = "Headrace"
Exported = tuple[str, dict[str, object]]


def origin_fields() -> dict[str, object]:
    """Return the fields about the origin of a file: the product and its version."""
    return {
        "rabbit_version": COMPATIBLE,
        "rabbitmq_version": COMPATIBLE,
        "product_name": PRODUCT,
        "product_version": __version__,
    }


def export(
    target: Target, vhost: str | None = None, *, for_rabbitmq: bool = False
) -> Iterator[Exported | None]:
    """Yield section and value of each element; None is a step without one.

    With ``vhost``, only the objects of this virtual host are exported, without users and without
    its name, so that they can be imported into another one. With ``for_rabbitmq``, hashes that
    RabbitMQ cannot read are left out.
    """
    snapshot = target.snapshot()
    if vhost is None:
        yield from _accounts(snapshot, target.default_queue_type, for_rabbitmq)
    for key, value in snapshot.parameters.items():
        if key.vhost == EVERYWHERE or key.component == METADATA or vhost not in (None, key.vhost):
            continue
        at = {} if vhost is not None else {"vhost": key.vhost}
        if key.component == POLICY:
            yield "policies", {**at, "name": key.name, **_policy_fields(value)}
        else:
            yield "parameters", {**at, "component": key.component, "name": key.name, "value": value}
    for name, virtual_host in list(target.vhosts.items()):
        if vhost is None or name == vhost:
            yield from topology(virtual_host, {} if vhost is not None else {"vhost": name})


def _accounts(
    snapshot: Snapshot, default_queue_type: str, for_rabbitmq: bool
) -> Iterator[Exported]:
    """Yield the virtual hosts, users, permissions and global parameters."""
    for name in snapshot.vhosts:
        metadata = snapshot.parameters.get(metadata_key(name), {})
        yield "vhosts", _vhost_fields(name, metadata, default_queue_type)
    for account in snapshot.accounts.values():
        limits = snapshot.parameters.get(Key(EVERYWHERE, USER_LIMITS, account.name), {})
        yield "users", _user_fields(account, limits, for_rabbitmq)
    for (user, vhost), permission in snapshot.permissions.items():
        value = {
            "configure": permission.configure,
            "write": permission.write,
            "read": permission.read,
        }
        yield "permissions", {"user": user, "vhost": vhost, **value}
    for (user, vhost, exchange), topics in snapshot.topic_permissions.items():
        value = {"exchange": exchange, "write": topics.write, "read": topics.read}
        yield "topic_permissions", {"user": user, "vhost": vhost, **value}
    for key, parameter in snapshot.parameters.items():
        if key.component == GLOBAL:
            yield "global_parameters", {"name": key.name, "value": parameter}


def _vhost_fields(
    name: str, metadata: Mapping[str, object], default_type: str
) -> dict[str, object]:
    """Return a virtual host as an element.

    ``default_type`` is the queue type of virtual hosts whose metadata names none; "" if unknown.
    """
    fields = {"default_queue_type": default_type, **metadata}
    fields = {field: value for field, value in fields.items() if value not in (None, "", [])}
    return {
        "name": name,
        "description": fields.get("description", ""),
        "tags": fields.get("tags", []),
        "metadata": {"description": "", "tags": [], **fields},
        **({"default_queue_type": kind} if (kind := fields.get("default_queue_type")) else {}),
    }


def _user_fields(account: Account, limits: object, for_rabbitmq: bool) -> dict[str, object]:
    value: dict[str, object] = {"name": account.name, **hash_fields(account, for_rabbitmq)}
    return {**value, "tags": list(account.tags), "limits": limits}


def hash_fields(account: Account, for_rabbitmq: bool) -> dict[str, object]:
    """Return the fields of an account's password hash and SCRAM keys.

    ``for_rabbitmq`` leaves out a hash that RabbitMQ cannot read.
    """
    for algorithm, (prefix, _) in FOREIGN_HASHES.items():
        if account.password_hash.startswith(f"{prefix}$"):
            digest = account.password_hash.partition("$")[2]
            return {"password_hash": digest, "hashing_algorithm": algorithm}
    if for_rabbitmq or not account.password_hash.startswith(ARGON2ID_PREFIX):
        return {"password_hash": ""}
    fields: dict[str, object] = {
        "password_hash": account.password_hash,
        "hashing_algorithm": ARGON2ID,
    }
    if account.scram is not None:
        fields[SCRAM_FIELD] = _scram_fields(account.scram)
    return fields


def _scram_fields(keys: ScramKeys) -> dict[str, object]:
    return {
        "iterations": keys.iterations,
        "salt": base64.b64encode(keys.salt).decode(),
        "stored_key": base64.b64encode(keys.stored_key).decode(),
        "server_key": base64.b64encode(keys.server_key).decode(),
    }


def _policy_fields(value: Mapping[str, object]) -> dict[str, object]:
    return {
        "pattern": value["pattern"],
        "apply-to": value.get("apply-to", "all"),
        "definition": value["definition"],
        "priority": value.get("priority", 0),
    }


def is_exported(queue: Queue) -> bool:
    """Return True for a client's queue that outlives its connection."""
    return not (
        queue.is_hidden
        or is_own(queue.name)
        or queue.exclusive_owner is not None
        or cast("VirtualHost", queue.vhost).lifetimes.is_owner_bound(queue)
    )


def topology(vhost: VirtualHost, at: dict[str, str]) -> Iterator[Exported | None]:
    """Yield the queues, exchanges and bindings of a virtual host; None is a step without one.

    Each element gets the fields ``at``.
    """
    for queue in vhost.queues_in_order:
        if not is_exported(queue) or queue.deleted:
            yield None
            continue
        yield (
            "queues",
            {
                "name": queue.name,
                **at,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                # The importing virtual host may have another default type.
                "type": queue_type(queue.arguments),
                **argument_fields(queue.arguments),
            },
        )
    exchanges = list(vhost.exchanges.values())
    for exchange in exchanges:
        if exchange.name and not exchange.name.startswith(RESERVED_PREFIX):
            yield (
                "exchanges",
                {
                    "name": exchange.name,
                    **at,
                    "type": exchange.type,
                    "durable": exchange.durable,
                    "auto_delete": exchange.auto_delete,
                    "internal": exchange.internal,
                    **argument_fields(exchange.arguments),
                },
            )
    for exchange in exchanges:
        for binding in list(exchange.bindings):
            kind = EXCHANGE if isinstance(binding.destination, Exchange) else QUEUE
            if kind == QUEUE and not is_exported(binding.destination):  # type: ignore[arg-type]
                yield None
                continue
            yield (
                "bindings",
                {
                    "source": exchange.name,
                    **at,
                    "destination": binding.destination.name,
                    "destination_type": kind,
                    "routing_key": binding.routing_key,
                    **argument_fields(binding.arguments),
                },
            )
