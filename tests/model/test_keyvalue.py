# SPDX-License-Identifier: Apache-2.0
"""Facts: what they keep, in which order they come, and where their limits are."""

from __future__ import annotations

import pytest

from headrace.model import keyvalue as facts_module
from headrace.model.counters import Counters
from headrace.model.errors import IllegalState, ResourceError
from headrace.model.exchange import deduplication
from headrace.model.keyvalue import FACT_KEY_MAX, FACT_VALUE_MAX, Facts
from headrace.model.ports import Store
from headrace.model.transaction.transaction import Transaction
from headrace.model.vhost.virtual_host import VirtualHost


@pytest.fixture
def facts() -> Facts:
    return Facts(Store())


def test_a_fact_is_set_changed_and_forgotten(facts: Facts) -> None:
    assert facts.get(b"a") is None
    facts.put(b"a", b"1")
    facts.put(b"a", b"")
    assert (facts.get(b"a"), len(facts)) == (b"", 1)
    facts.put(b"a", None)
    facts.put(b"a", None)
    assert (facts.get(b"a"), len(facts)) == (None, 0)


def test_facts_come_by_prefix_in_order_and_may_change_meanwhile(facts: Facts) -> None:
    for key in (b"b/2", b"a/1", b"b/1", b"c/1", b"b", b"b/3"):
        facts.put(key, key.upper())
    assert [key for key, _ in facts.items(b"b/")] == [b"b/1", b"b/2", b"b/3"]
    assert len(list(facts.items())) == 6
    seen = []
    for key, value in facts.items(b"b/"):
        seen.append((key, value))
        facts.put(key, None)
        facts.put(b"b/0", b"before")
    assert seen == [(b"b/1", b"B/1"), (b"b/2", b"B/2"), (b"b/3", b"B/3")]
    assert facts.remove_all(b"b/") == 1
    assert [key for key, _ in facts.items()] == [b"a/1", b"b", b"c/1"]


def test_facts_have_limits(facts: Facts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts_module, "FACTS_MAX", 2)
    monkeypatch.setattr(facts_module, "FACTS_BYTES_MAX", 100_000)
    facts.put(b"k" * FACT_KEY_MAX, b"v" * FACT_VALUE_MAX)
    for key, value, text in (
        (b"", b"", "1 to 600 bytes"),
        (b"k" * (FACT_KEY_MAX + 1), b"", "not 601"),
        (b"k", b"v" * (FACT_VALUE_MAX + 1), "'k' would have 65537"),
        (b"k", b"v" * 50_000, "at most 100000 bytes"),
    ):
        with pytest.raises(ResourceError, match=text):
            facts.put(key, value)
    facts.put(b"k", b"v")
    with pytest.raises(ResourceError, match="at most 2 facts"):
        facts.put(b"l", b"v")
    facts.put(b"k", b"w")
    facts.put(b"k" * FACT_KEY_MAX, None)
    facts.put(b"l", b"v" * 50_000)
    assert len(facts) == 2


def test_a_work_changes_facts_at_its_commit() -> None:
    vhost = VirtualHost("/", store=Store(), counters=Counters(now_ms=1))
    vhost.facts.put(b"b", b"0")
    transaction = Transaction(vhost)
    transaction.fact(b"a", b"1")
    transaction.fact(b"a", b"2")
    transaction.fact(b"b", None)
    assert transaction
    assert dict(vhost.facts.items()) == {b"b": b"0"}
    transaction.commit()
    assert dict(vhost.facts.items()) == {b"a": b"2"}
    transaction.fact(b"a", b"3")
    transaction.forget()
    transaction.commit()
    assert dict(vhost.facts.items()) == {b"a": b"2"}
    with pytest.raises(ResourceError):
        transaction.fact(b"", b"")
    with pytest.raises(IllegalState):
        Transaction(vhost, owns_messages=True).fact(b"a", b"1")


def test_of_more_ids_than_survive_the_newest_do(
    facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deduplication, "PERSISTENT_MAX", 3)

    def made() -> deduplication.IdCache:
        arguments = {deduplication.CACHE_SIZE: 5}
        return deduplication.IdCache(
            arguments, counters=Counters(now_ms=1), facts=facts, prefix=b"ids/"
        )

    ids = made()
    for name in (b"a", b"b", b"c", b"d", b"e", b"a"):
        ids.add_id(name * 16, {}, True)
    assert all(ids.contains(name * 16) for name in (b"a", b"b", b"c", b"d", b"e"))
    ids.add_id(b"f" * 16, {}, False)
    assert len(ids) == 5
    assert not ids.contains(b"b" * 16)
    again = made()
    assert [name for name in "abcdef" if again.contains(name.encode() * 16)] == ["a", "d", "e"]
    again.clear()
    assert list(facts.items(b"ids/")) == []
