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


# ``everywhere``: with the rows of virtual hosts that other brokers of the cluster serve.
ALARMS = ListOperation[AlarmRow]("list alarms")
BACKUPS = ListOperation[BackupRow]("list backups")
BINDINGS = ListOperation[BindingRow]("list bindings", everywhere=True)
CERTIFICATES = ListOperation[CertificateRow]("list certificates")
CONSUMERS = ListOperation[ConsumerRow]("list consumers")
DEDUPLICATION = ListOperation[DeduplicationRow]("list deduplication", everywhere=True)
GLOBAL_PARAMETERS = ListOperation[ParameterRow]("list global parameters")
GROUPS = ListOperation[GroupRow]("list groups", everywhere=True)
HASHED_USERS = ListOperation[HashedUserRow]("list users", hashes=True)
JOBS = ListOperation[JobRow]("list jobs", everywhere=True)
LEASES = ListOperation[LeaseRow]("list leases", everywhere=True)
LOG_LINES = ListOperation[LogLineRow]("show log")
# Messages have the properties and headers that their publishers chose.
MESSAGES = ListOperation[JsonObject]("peek")
PERMISSIONS = ListOperation[PermissionRow]("list permissions")
POLICIES = ListOperation[PolicyRow]("list policies", everywhere=True)
SETTINGS = ListOperation[SettingRow]("list settings")
STAGED_BATCHES = ListOperation[StagedBatchRow]("list batches", everywhere=True)
STREAMS = ListOperation[StreamRow]("list streams", everywhere=True)
TAKEN_MESSAGES = ListOperation[JsonObject]("get")
TOPIC_PERMISSIONS = ListOperation[TopicPermissionRow]("list topic permissions")
TRANSACTIONS = ListOperation[TransactionRow]("list transactions", everywhere=True)
USER_LIMITS = ListOperation[UserLimitsRow]("list limits", of="users")
USERS = ListOperation[UserRow]("list users")
VHOST_LIMITS = ListOperation[VhostLimitsRow]("list limits")
