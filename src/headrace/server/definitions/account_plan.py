# SPDX-License-Identifier: Apache-2.0
"""The plan for virtual hosts, users, permissions, parameters and policies of an import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.gateway.security.access import (
    ForeignExpression,
    check_pattern,
    check_topic_pattern,
)
from headrace.gateway.security.passwords import NO_PASSWORD
from headrace.model.errors import ModelError
from headrace.model.policy.accounts import AccountError, Permission, TopicPermission
from headrace.model.policy.name_patterns import ForeignPattern
from headrace.model.policy.parameters import EVERYWHERE, Key
from headrace.model.policy.policy import COMPONENT as POLICY
from headrace.model.policy.policy import POLICIES_MAX
from headrace.model.policy.rules import (
    GLOBAL,
    GLOBALS_MAX,
    QUEUE_TYPES,
    USER_LIMITS,
    metadata_key,
)
from headrace.server.definitions.document import DocumentError
from headrace.server.definitions.elements import Element, as_object, read_account_in_part
from headrace.server.definitions.outcomes import (
    CHANGED,
    CREATED,
    IN_PART,
    UNCHANGED,
    Duplicate,
    ElementOutcome,
    NoEquivalent,
)
from headrace.server.definitions.rules import (
    COMPONENTS,
    METADATA_FIELDS,
    ONLY_NAMES,
    POLICIES,
    check_rule,
    idle_keys,
)
from headrace.store.catalog.changes import Changes

if TYPE_CHECKING:
    from headrace.server.definitions.target import Target

QUEUE_TYPE_FIELD = "default_queue_type"
VHOST_METADATA = ("description", "tags", QUEUE_TYPE_FIELD)
# JSON's and Erlang's forms of a missing value.
MISSING_VALUES: tuple[object, ...] = (None, "undefined")
EMPTY_VALUES: tuple[object, ...] = ("", [])  # Values that remove a field of the metadata.
PATTERN_BYTES_MAX = 4096


class AccountPlan:
    """The part of a plan for all elements except exchanges, queues and bindings."""

    def __init__(self, target: Target, vhost: str | None, *, exact: bool) -> None:
        """``vhost`` is the virtual host of elements that name none.

        ``exact`` refuses expressions with forms that RE2 lacks.

        Raises:
            AccountError: the current accounts cannot be read.
        """
        self.target = target
        self.changes = Changes()
        self._vhost = vhost
        self._exact = exact
        self._current = target.snapshot()
        #: The path and the value of each element of the file, by kind and name.
        self._seen: dict[tuple[object, ...], tuple[str, object]] = {}
        # The number of policies after the import, by virtual host and component.
        self._policy_counts: dict[tuple[str, str], int] = {}

    # --- Users, virtual hosts, permissions -----------------------------------------------------

    def _plan_vhost(self, element: Element) -> ElementOutcome:
        name = element.name("name", "virtual host")
        metadata = self._read_metadata(element)
        self._record_once(element, "name", metadata, "virtual host", name)
        partial_reason = ""
        kind = metadata.get(QUEUE_TYPE_FIELD)
        if isinstance(kind, str) and kind not in ("", *QUEUE_TYPES) and not self._exact:
            partial_reason = f"unknown queue type '{kind:.64}': the default type stays as it is"
            metadata = {field: metadata[field] for field in metadata if field != QUEUE_TYPE_FIELD}
        outcome = UNCHANGED
        if name not in self._current.vhosts:
            self.changes.vhosts[name] = None
            outcome = CREATED
        if metadata:
            key = metadata_key(name)
            current = self._current.parameters.get(key, {})
            self._check_rule(element, key, metadata)
            merged = {**current, **metadata}
            merged = {field: value for field, value in merged.items() if value not in EMPTY_VALUES}
            if merged != current:
                self.changes.parameters[key] = merged
                outcome = CREATED if outcome == CREATED else CHANGED
        return name, IN_PART if partial_reason else outcome, partial_reason

    @staticmethod
    def _read_metadata(element: Element) -> dict[str, object]:
        """Return the metadata of a virtual host, empty values included.

        A field may stand in ``metadata``, beside it, or in both.
        """
        metadata = {
            field: value
            for field, value in element.mapping("metadata").items()
            if field in METADATA_FIELDS
        }
        for field in VHOST_METADATA:
            value = element.value.get(field)
            if value not in (*MISSING_VALUES, *EMPTY_VALUES) or field not in metadata:
                metadata[field] = value
        kind = metadata.get(QUEUE_TYPE_FIELD)
        if isinstance(kind, str):
            metadata[QUEUE_TYPE_FIELD] = kind.removeprefix("rabbit_").removesuffix("_queue")
        return {field: value for field, value in metadata.items() if value not in MISSING_VALUES}

    def _plan_user(self, element: Element) -> ElementOutcome:
        account, partial_reason = read_account_in_part(element)
        limits = element.mapping("limits")
        self._record_once(element, "name", (account, limits), "user", account.name)
        outcome = UNCHANGED
        current = self._current.accounts.get(account.name)
        # Without a usable hash, an existing user keeps its password: losing it would lock it out.
        if partial_reason and current is not None:
            account = replace(current, tags=account.tags)
        if current is None:
            outcome = CREATED
        elif current != account:
            outcome = CHANGED
        if outcome != UNCHANGED:
            self.changes.accounts[account.name] = account
        if limits:
            key = Key(EVERYWHERE, USER_LIMITS, account.name)
            self._check_rule(element, key, limits)
            if self._set_parameter(key, limits) != UNCHANGED and outcome == UNCHANGED:
                outcome = CHANGED
        if partial_reason:
            has_password = account.password_hash != NO_PASSWORD
            text = (
                f"{partial_reason}: the user {'keeps its' if has_password else 'has no'} password"
            )
            return account.name, IN_PART, text
        return account.name, outcome, ""

    def _plan_permission(self, element: Element) -> ElementOutcome:
        user, vhost = self._known_user(element), self._known_vhost(element)
        patterns, pattern_note = self._read_patterns(
            element, ("configure", "write", "read"), check_pattern
        )
        permission = Permission(*patterns)
        self._record_once(element, "user", permission, "permission", user, vhost)
        current = self._current.permissions.get((user, vhost))
        name, outcome = f"{user} in {vhost}", UNCHANGED
        if current != permission:
            self.changes.permissions[user, vhost] = permission
            outcome = CREATED if current is None else CHANGED
        return name, IN_PART if pattern_note else outcome, pattern_note

    def _plan_topic_permission(self, element: Element) -> ElementOutcome:
        user, vhost = self._known_user(element), self._known_vhost(element)
        exchange = element.text("exchange")
        name = f"{user} in {vhost} at {exchange}"
        patterns, pattern_note = self._read_patterns(
            element, ("write", "read"), check_topic_pattern
        )
        permission = TopicPermission(*patterns)
        self._record_once(
            element, "exchange", permission, "topic permission", user, vhost, exchange
        )
        current = self._current.topic_permissions.get((user, vhost, exchange))
        outcome = UNCHANGED
        if current != permission:
            self.changes.topic_permissions[user, vhost, exchange] = permission
            outcome = CREATED if current is None else CHANGED
        return name, IN_PART if pattern_note else outcome, pattern_note

    def _read_patterns(
        self, element: Element, fields: tuple[str, ...], check: Callable[[str, str], None]
    ) -> tuple[list[str], str]:
        """Return the expressions of a permission, and a note on those without an equivalent.

        An expression without an equivalent becomes "", which matches nothing, so that the
        permission never allows more than in the file. The note is "" if all have equivalents.
        """
        patterns: list[str] = []
        notes: list[str] = []
        for field in fields:
            pattern = element.text(field, bytes_max=PATTERN_BYTES_MAX)
            try:
                check(field, pattern)
            except AccountError as error:
                if self._exact or not isinstance(error, ForeignExpression):
                    raise DocumentError(element.path, str(error)) from None
                notes.append(f"{error}; {field} matches nothing")
                pattern = ""
            patterns.append(pattern)
        return patterns, "; ".join(notes)

    def _known_user(self, element: Element) -> str:
        """Return the user of an element, which must exist or be in the file."""
        user = element.name("user", "user")
        if user not in self._current.accounts and ("user", user) not in self._seen:
            raise element.fail("user", f"there is no user '{user}', here or in the file")
        return user

    def _known_vhost(self, element: Element) -> str:
        """Return the virtual host of an element, which must exist or be in the file."""
        vhost = element.vhost()
        if vhost not in self._current.vhosts and vhost not in self.changes.vhosts:
            raise element.fail("vhost", f"there is no virtual host '{vhost}', here or in the file")
        return vhost

    # --- Parameters and policies ---------------------------------------------------------------

    def _plan_parameter(self, element: Element) -> ElementOutcome:
        component = element.name("component", "component")
        name = element.name("name", component)
        vhost = self._known_vhost(element)
        value = as_object(element.value.get("value"))
        self._record_once(element, "name", value, component, vhost, name)
        if component not in COMPONENTS:
            raise NoEquivalent(name, f"unknown parameter component '{component}'")
        if name != ONLY_NAMES.get(component, name):
            raise element.fail("name", f"a {component} has the name '{ONLY_NAMES[component]}'")
        if "value" not in element.value:
            raise element.fail("value", "the field is missing")
        key = Key(EVERYWHERE if component == USER_LIMITS else vhost, component, name)
        if isinstance(value, Mapping) and "definition" in value:
            value = {**value, "definition": as_object(value["definition"])}
        self._check_rule(element, key, value)
        return name, self._set_parameter(key, value), self._describe_idle_keys(value)

    def _plan_global_parameter(self, element: Element) -> ElementOutcome:
        name = element.name("name", "parameter")
        value = as_object(element.value.get("value"))
        self._record_once(element, "name", value, "global parameter", name)
        if "value" not in element.value:
            raise element.fail("value", "the field is missing")
        key = Key(EVERYWHERE, GLOBAL, name)
        self._check_rule(element, key, value)
        present = {
            parameter for parameter in self._current.parameters if parameter.component == GLOBAL
        }
        new = {parameter for parameter in self.changes.parameters if parameter.component == GLOBAL}
        if len(present | new | {key}) > GLOBALS_MAX:
            raise element.fail("name", f"there are {GLOBALS_MAX} global parameters already")
        return name, self._set_parameter(key, value), ""

    def _plan_policy(self, element: Element) -> ElementOutcome:
        name, vhost = element.name("name", "policy"), self._known_vhost(element)
        fields = ("pattern", "definition", "priority", "apply-to")
        value = {
            field: as_object(element.value[field]) for field in fields if field in element.value
        }
        self._record_once(element, "name", value, POLICY, vhost, name)
        self._check_rule(element, Key(vhost, POLICY, name), value)
        outcome = self._set_parameter(Key(vhost, POLICY, name), value)
        return name, outcome, self._describe_idle_keys(value)

    @staticmethod
    def _describe_idle_keys(value: object) -> str:
        """Return a note on the keys of a policy that have no effect; empty without any."""
        keys = idle_keys(value)
        return f"without effect here: {', '.join(keys)}" if keys else ""

    def _check_rule(self, element: Element, key: Key, value: object) -> None:
        """Check the value of a parameter.

        Raises:
            DocumentError: the value is invalid.
            NoEquivalent: the broker has no equivalent of it.
        """
        try:
            note = check_rule(key, value)
        except ForeignPattern as error:
            if self._exact:
                raise DocumentError(element.path, error.text) from None
            raise NoEquivalent(key.name, error.text) from None
        except ModelError as error:
            raise DocumentError(element.path, error.text) from None
        if note:
            raise NoEquivalent(key.name, note)

    def _set_parameter(self, key: Key, value: object) -> str:
        """Plan to set a parameter; return the outcome."""
        current = self._current.parameters.get(key)
        if current == value:
            return UNCHANGED
        if current is None and key.component in POLICIES:
            kind = (key.vhost, key.component)
            if kind not in self._policy_counts:
                self._policy_counts[kind] = sum(
                    parameter[:2] == kind for parameter in self._current.parameters
                )
            self._policy_counts[kind] += 1
            if self._policy_counts[kind] > POLICIES_MAX:
                text = f"virtual host '{key.vhost}' has more than {POLICIES_MAX} of these"
                raise DocumentError(f"$.{key.component}.{key.name:.64}", text)
        self.changes.parameters[key] = value
        return CREATED if current is None else CHANGED

    # --- Names in the file ---------------------------------------------------------------------

    def _record_once(self, element: Element, field: str, value: object, *key: object) -> None:
        """Record an element under ``key``, its kind and name.

        Raises:
            Duplicate: an earlier element of the file is equal.
            DocumentError: an earlier element of the file has this name and another value.
        """
        path, current = self._seen.setdefault(key, (element.path, value))
        if path == element.path:
            return
        if current != value:
            raise element.fail(field, f"another {key[0]} of that name is at {path}")
        raise Duplicate(path)
