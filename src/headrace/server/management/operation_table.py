# SPDX-License-Identifier: Apache-2.0
"""The decorator that makes a function an operation, with its rights and its documentation.

The module of a resource has a table, and declares each operation above its function::

    operation = OperationTable()


    @operation("delete queue", USE, CONFIGURE_QUEUE, fields="`vhost`, `name`")
    def delete_queue(call: Call) -> JsonLine: ...

A row of the table has the rights that the broker checks before the function runs, whether the
operation only reads, and the text for the reference page of the management socket. The system user
has no ticket and needs no rights. :mod:`headrace.server.observe.audited_events` decides which
operations are audited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.management_operations import OperationName
    from headrace.server.management.call import Call, Operation
    from headrace.user_tags import Tags

    Function = TypeVar("Function", bound=Operation)


class RequiredPermission(NamedTuple):
    """A permission that an operation requires on the name in a field of the request."""

    permission: str
    kind: str  # The kind of the object; empty: the field ``kind`` has it, queue by default.
    field: str


CONFIGURE_QUEUE = RequiredPermission("configure", "queue", "name")
READ_QUEUE = RequiredPermission("read", "queue", "queue")


class OperationRow(NamedTuple):
    """One operation: its function, the rights that it needs, and its row in the docs."""

    name: OperationName
    run: Operation
    tags: Tags  # The user must have one of these tags.
    permissions: tuple[RequiredPermission, ...]
    reads: bool  # It changes no object, so its answer does not wait for the disk.
    own_vhost: bool  # True if only administrators may use a virtual host that they may not open.
    fields: str  # The fields of the request, for the reference page.
    note: str  # A note about permissions that the function itself checks, for the reference page.
    takes_lines: bool  # Lines follow each request, not only one with the field ``lines``.
    former_name: str  # The name in earlier versions, which clients may still use.

    def check(self, call: Call) -> None:
        """Check that the user of a call may run the operation.

        The code that checks permissions is that of AMQP clients.

        Raises:
            OperationRefused: the user lacks a tag, or does not see the virtual host.
            AccessRefused: the user lacks a permission.
        """
        user = call.user
        if user is None:
            return
        if self.tags.isdisjoint(user.tags):
            tags = ", ".join(sorted(self.tags))
            call.refuse("refused", f"user '{user.name}' has none of the tags {tags}")
        if not self.permissions and not self.own_vhost:
            return
        vhost = call.vhost()
        if self.own_vhost and not call.administers and not user.may_open(vhost.name):
            call.refuse("refused", f"access to vhost '{vhost.name}' refused for user '{user.name}'")
        access = call.broker.access
        for permission in self.permissions:
            kind = permission.kind or call.text("kind", "queue")
            name = call.text(permission.field, "")
            queue = vhost.queues.get(name) if kind == "queue" else None
            object_name = queue.access_name if queue else name
            access.check(user, vhost.name, permission.permission, kind, object_name)


class OperationTable:
    """The operations of one resource, and the decorator that adds them."""

    def __init__(self) -> None:
        self.rows: list[OperationRow] = []

    def __call__(
        self,
        name: OperationName,
        tags: Tags,
        *permissions: RequiredPermission,
        reads: bool = False,
        own_vhost: bool = False,
        fields: str = "",
        note: str = "",
        takes_lines: bool = False,
        former_name: str = "",
    ) -> Callable[[Function], Function]:
        """Return the decorator of the function that runs an operation."""

        def add(function: Function) -> Function:
            row = OperationRow(
                name,
                function,
                tags,
                permissions,
                reads,
                own_vhost,
                fields,
                note,
                takes_lines,
                former_name,
            )
            self.rows.append(row)
            return function

        return add
