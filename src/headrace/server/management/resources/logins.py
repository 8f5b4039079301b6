# SPDX-License-Identifier: Apache-2.0
"""Operations that log a user in and out, and return the user of a ticket."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import TYPE_CHECKING

from headrace.gateway.security.remote_peer import LoginRefused, RemotePeer
from headrace.server.management.call import sees_all
from headrace.server.management.operation_table import OperationTable
from headrace.user_tags import ADMINISTRATOR, LOOK

if TYPE_CHECKING:
    from headrace.gateway.security.user import User
    from headrace.server.management.call import Call, JsonLine

operation = OperationTable()

SECRET_BYTES_MAX = 65536  # The longest password or token.
PROTOCOLS = ("http",)
REFUSED = "the login was refused"  # The text does not reveal the reason.


@operation(
    "login", LOOK, reads=True, fields="`peer`, `username` and `password`, or `token`; `encrypted`"
)
async def login(call: Call) -> JsonLine:
    """Check a user's password or token, by the rules for connections; return a ticket.

    ``peer`` is the address of the client, ``encrypted`` is true if it uses TLS.
    """
    peer = parse_peer(call.text("peer"), encrypted=call.flag("encrypted"))
    if peer is None:
        call.refuse("bad-request", "'peer' is not an address with a port")
    protocol = call.text("protocol", PROTOCOLS[0])
    if protocol not in PROTOCOLS:
        call.refuse("bad-request", f"'protocol' must be among {', '.join(PROTOCOLS)}")
    token = call.text("token", "", size_max=SECRET_BYTES_MAX)
    if token:
        mechanism, response = "OAUTHBEARER", f"n,,\x01auth=Bearer {token}\x01\x01"
    else:
        name = call.text("username", "")
        password = call.text("password", "", size_max=SECRET_BYTES_MAX)
        mechanism, response = "PLAIN", f"\0{name}\0{password}"
    try:
        user = await call.broker.login.admit(
            peer, mechanism, response.encode("utf-8", "surrogatepass"), protocol
        )
    except LoginRefused:
        call.refuse("refused", REFUSED)
    if LOOK.isdisjoint(user.tags):
        call.refuse("refused", f"user '{user.name}' has none of the tags {', '.join(sorted(LOOK))}")
    return {"ticket": call.broker.tickets.issue(user), **describe_user(call, user)}


@operation("logout", LOOK, reads=True)
async def logout(call: Call) -> JsonLine:
    """End the ticket of a request; answer when it no longer survives a restart."""
    written = call.broker.tickets.end(call.text("as"))
    if written is not None:
        await asyncio.wrap_future(written)
    return {}


@operation("whoami", LOOK, reads=True)
def whoami(call: Call) -> JsonLine:
    """Return the user of a request: name, tags, and virtual hosts that it sees."""
    if call.user is None:
        return {
            "user": call.operator,
            "tags": [ADMINISTRATOR],
            "system": True,
            "by_token": False,
            "sees_all": True,
        }
    return describe_user(call, call.user)


def describe_user(call: Call, user: User) -> JsonLine:
    """Return a user with its tags and the virtual hosts that it may open."""
    return {
        "user": user.name,
        "tags": list(user.tags),
        "system": False,
        "by_token": user.grants is not None,
        "vhosts": [name for name in call.broker.vhosts if user.may_open(name)],
        "sees_all": sees_all(user),
    }


def parse_peer(text: str, *, encrypted: bool = False) -> RemotePeer | None:
    """Parse an address such as ``203.0.113.9:4711`` or ``[::1]:4711``; return None for others."""
    host, _, port = text.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= 18
    if not is_number or int(port) > 65535:
        return None
    try:
        address = ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    address = address if mapped is None else mapped
    return RemotePeer(str(address), int(port), address.is_loopback, encrypted)
