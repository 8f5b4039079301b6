# SPDX-License-Identifier: Apache-2.0
"""Requests about leases (:mod:`headrace.model.lease.registry`).

A user needs the permission to read the queue. A request to claim, take, settle or release names its
``owner``; an operator's ``lease.release`` may have ``force`` instead. Readers are not owners:
they may reject messages in advance, and name the owner that they read for.
"""

from headrace.gateway.requests.requests import Handler, RequestAnswer, RequestCall, Steps
from headrace.model.lease.lease import Lease
from headrace.model.lease.ownership import KEEP, OWNER_BYTES_MAX, TIMEOUT_S, TIMEOUT_S_MAX
from headrace.model.lease.registry import BYTES_MAX, GROUP_BYTES_MAX, MESSAGES_MAX, REJECTS_MAX
from headrace.model.lease.rejects import has_dead_letters

PARTS_MAX = 1000  # The maximum parts of a snapshot.


def read_group(call: RequestCall) -> str:
    """Return the group that a request names."""
    return call.text("group", bytes_max=GROUP_BYTES_MAX)


def read_owner(call: RequestCall) -> str:
    """Return the owner that a request names."""
    return call.text("owner", bytes_max=OWNER_BYTES_MAX)


def find_lease(call: RequestCall) -> Lease:
    """Return the lease that a request names."""
    lease: Lease = call.vhost.leases.find(call.queue(), read_group(call))
    return lease


def owned_lease(call: RequestCall) -> Lease:
    """Return the lease that a request names, if its owner sent it."""
    lease = find_lease(call)
    call.vhost.leases.own_lease(lease, read_owner(call), call.connection.number)
    return lease


def claim(call: RequestCall) -> Steps:
    """Claim a lease for an owner; create the lease if it is missing."""
    queue, group, owner = call.queue(), read_group(call), read_owner(call)
    leases = call.vhost.leases
    timeout_s = call.number("timeout_s", TIMEOUT_S, minimum=1, maximum=TIMEOUT_S_MAX)
    on_timeout, force = call.text("on_timeout", KEEP), call.flag("force")
    existing = next((lease for lease in leases.find_all(queue) if lease.group == group), None)
    if existing is not None and leases.ownerships[existing].owner != owner:
        yield from leases.wait_idle(existing)  # Requests of the last owner are done first.
    lease = leases.claim(
        queue,
        group,
        owner,
        call.connection.number,
        timeout_s=timeout_s,
        on_timeout=on_timeout,
        force=force,
    )
    return describe(call, lease)


def take(call: RequestCall) -> Steps:
    """Lease ready messages to the owner; they get the lease's next numbers."""
    lease = owned_lease(call)
    first = None if call.request.get("first") is None else call.number("first")
    messages = call.number("messages", MESSAGES_MAX, minimum=1, maximum=MESSAGES_MAX)
    octets = call.number("octets", BYTES_MAX, minimum=1, maximum=BYTES_MAX)
    if first is not None and first < lease.settled:
        call.refuse("gone", f"{first} is settled; the lease begins with {lease.settled}")
    taken = yield from call.vhost.leases.take(lease, first, messages, octets)
    return {
        "stream": lease.name,
        "first": taken.first,
        "last": taken.last,
        "octets": taken.size,
        "ready": lease.source.ready_count,
    }


def settle(call: RequestCall) -> Steps:
    """Settle all numbers below ``upto``; the numbers in ``rejects`` become dead letters."""
    lease = owned_lease(call)
    upto, rejects = call.number("upto"), numbers(call, "rejects")
    result = yield from call.vhost.leases.settle(lease, upto, rejects)
    answer: RequestAnswer = result._asdict()
    return answer


def numbers(call: RequestCall, field: str) -> list[int]:
    """Return a list of numbers; ``[first, last]`` stands for a range, ``last`` excluded."""
    result: list[int] = []
    ranges = call.request.get(field, [])
    if not isinstance(ranges, list):
        call.refuse("bad-request", f"'{field}' is not a list")
    for item in ranges:
        pair = item if isinstance(item, list) else [item, None]
        is_valid = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in pair[:1])
        if len(pair) != 2 or not is_valid or not (pair[1] is None or isinstance(pair[1], int)):
            call.refuse("bad-request", f"'{field}' has {item!r}, which is not a number or a range")
        last = pair[0] + 1 if pair[1] is None else pair[1]
        if len(result) + last - pair[0] > REJECTS_MAX:
            call.refuse("limit", f"'{field}' has more than {REJECTS_MAX} numbers")
        result += range(pair[0], last)
    return result


def reject(call: RequestCall) -> RequestAnswer:
    """Reject numbers of a range in advance, for its settlement; all others are accepted."""
    lease = find_lease(call)
    owner = call.text("owner", "", bytes_max=OWNER_BYTES_MAX)
    holder = call.vhost.leases.ownerships.live_owner(lease)
    if owner and holder and owner != holder:
        call.refuse("conflict", f"the lease's owner is '{holder}', and not '{owner}'")
    first, last = call.number("first"), call.number("last")
    call.vhost.leases.rejects.set_verdict(lease, first, last, numbers(call, "numbers"))
    return {"settled": lease.settled}


def rejected(call: RequestCall) -> RequestAnswer:
    """Return the numbers of a range that are rejected in advance."""
    lease = find_lease(call)
    first, last = call.number("first"), call.number("last")
    ranges = call.vhost.leases.rejects.ranges(lease, first, last)
    return {"settled": lease.settled, "numbers": [list(pair) for pair in ranges]}


def release(call: RequestCall) -> Steps:
    """Release the leased messages; with ``forget`` delete the lease."""
    lease = find_lease(call) if call.flag("force") else owned_lease(call)
    released = yield from call.vhost.leases.release(lease, forget=call.flag("forget"))
    return {"released": released, "settled": lease.settled}


def leave(call: RequestCall) -> RequestAnswer:
    """Release the ownership of a lease."""
    call.vhost.leases.remove_owner(find_lease(call), read_owner(call))
    return {}


def info(call: RequestCall) -> RequestAnswer:
    """Return the state of a lease."""
    return describe(call, find_lease(call))


def list_leases(call: RequestCall) -> RequestAnswer:
    """Return the leases of all queues that the user may read."""
    queue_name = call.text("queue", "")
    allowed = call.context.access.allowed
    leases = [
        describe(call, lease)
        for lease in call.vhost.leases
        if (not queue_name or lease.source.name == queue_name)
        and allowed(call.user, call.vhost.name, "read", lease.source.name)
    ]
    return {"leases": sorted(leases, key=lambda lease: (lease["queue"], lease["group"]))}


def snapshot(call: RequestCall) -> RequestAnswer:
    """Return the first and last position of a queue, and the bounds of equal parts."""
    queue = call.queue()
    if queue.is_stream:
        call.refuse(
            "precondition", f"queue '{queue.name}' is a stream, which is read without a lease"
        )
    parts = call.number("parts", 1, minimum=1, maximum=PARTS_MAX)
    return {
        "broker": call.context.identity,
        "queue": queue.name,
        "id": queue.id,
        "first": queue.ready.first_position(queue.counters.next_seq),
        "last": call.vhost.counters.next_seq,
        "bounds": queue.ready.split_positions(parts),
        "messages": queue.ready_count,
        "octets": queue.ready_bytes,
    }


def describe(call: RequestCall, lease: Lease) -> RequestAnswer:
    """Return a lease as a JSON object."""
    leases = call.vhost.leases
    ownership = leases.ownerships[lease]
    return {
        "broker": call.context.identity,
        "queue": lease.source.name,
        "queue_id": lease.source.id,
        "group": lease.group,
        "stream": lease.name,
        "id": lease.id,
        "settled": lease.settled,
        "next": lease.log.next_offset,
        "ready": lease.source.ready_count,
        "owner": leases.ownerships.live_owner(lease),
        "timeout_s": ownership.timeout_s,
        "on_timeout": ownership.on_timeout,
        "dead_letters": has_dead_letters(lease),
        "rejects": leases.rejects.count(lease),
    }


HANDLERS: dict[str, Handler] = {
    "lease.claim": claim,
    "lease.take": take,
    "lease.settle": settle,
    "lease.reject": reject,
    "lease.rejected": rejected,
    "lease.release": release,
    "lease.leave": leave,
    "lease.info": info,
    "lease.list": list_leases,
    "queue.snapshot": snapshot,
}
