# SPDX-License-Identifier: Apache-2.0
"""The broker's lists, each with the type of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.management_rows import (
    AlarmRow,
    BackupRow,
    BindingRow,
    CertificateRow,
    ConsumerRow,
    DeduplicationRow,
    GroupRow,
    HashedUserRow,
    JobRow,
    LeaseRow,
    LogLineRow,
    ParameterRow,
    PermissionRow,
    PolicyRow,
    SettingRow,
    StagedBatchRow,
    StreamRow,
    TopicPermissionRow,
    TransactionRow,
    UserLimitsRow,
    UserRow,
    VhostLimitsRow,
)
from headrace.untyped import JsonObject

if TYPE_CHECKING:
    from headrace.management_operations import OperationName

Row = TypeVar("Row", covariant=True)


class ListOperation(Generic[Row]):
    """An operation whose items are rows of one type; ``fields`` belong to each of its requests."""

    def __init__(self, name: OperationName, **fields: object) -> None:
        self.name = name
        self.fields = fields


ALARMS = ListOperation[AlarmRow]("list alarms")
BACKUPS = ListOperation[BackupRow]("list backups")
BINDINGS = ListOperation[BindingRow]("list bindings")
CERTIFICATES = ListOperation[CertificateRow]("list certificates")
CONSUMERS = ListOperation[ConsumerRow]("list consumers")
DEDUPLICATION = ListOperation[DeduplicationRow]("list deduplication")
GLOBAL_PARAMETERS = ListOperation[ParameterRow]("list global parameters")
GROUPS = ListOperation[GroupRow]("list groups")
HASHED_USERS = ListOperation[HashedUserRow]("list users", hashes=True)
JOBS = ListOperation[JobRow]("list jobs")
LEASES = ListOperation[LeaseRow]("list leases")
LOG_LINES = ListOperation[LogLineRow]("show log")
# Messages have the properties and headers that their publishers chose.
MESSAGES = ListOperation[JsonObject]("peek")
PERMISSIONS = ListOperation[PermissionRow]("list permissions")
POLICIES = ListOperation[PolicyRow]("list policies")
SETTINGS = ListOperation[SettingRow]("list settings")
STAGED_BATCHES = ListOperation[StagedBatchRow]("list batches")
STREAMS = ListOperation[StreamRow]("list streams")
TAKEN_MESSAGES = ListOperation[JsonObject]("get")
TOPIC_PERMISSIONS = ListOperation[TopicPermissionRow]("list topic permissions")
TRANSACTIONS = ListOperation[TransactionRow]("list transactions")
USER_LIMITS = ListOperation[UserLimitsRow]("list limits", of="users")
USERS = ListOperation[UserRow]("list users")
VHOST_LIMITS = ListOperation[VhostLimitsRow]("list limits")
