# SPDX-License-Identifier: Apache-2.0
"""Spark's queries and pipelines, by the API and as pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from headrace.console.pages.drawings.pipeline import compute_levels, draw_pipeline
from support.console import LocalConsole
from support.console_browser import Browser
from support.console_objects import HOSTILE
from support.console_pipelines import claim_groups, places, run_pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pipelines")


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory, folder: Path) -> Iterator[LocalConsole]:
    """A console that reads pipelines from a folder in which one runs."""
    data = tmp_path_factory.mktemp("data")
    with LocalConsole(data, pipelines=places(folder)) as running, run_pipeline(folder):
        claim_groups(running.broker.url)
        yield running


def read_queries(console: LocalConsole) -> dict[str, dict[str, Any]]:
    """Return the queries of the API by name."""
    return {row["name"]: row for row in console.get("/api/headrace/queries")}


def test_queries_of_pipelines_tell_group_lag_rates_batch_and_checkpoint(
    console: LocalConsole, folder: Path
) -> None:
    lake = read_queries(console)["lake"]
    assert (lake["pipeline"], lake["state"], lake["id"]) == ("orders", "running", "0c5b")
    assert (lake["lag"], lake["batch"], lake["rows_per_s"]) == (120, 17, 8100.5)
    assert (lake["group"], lake["reads"], lake["waiting"]) == ("lake", "orders", 1)
    assert lake["checkpoint"] == str(folder / ".headrace/orders/checkpoints/lake")


def test_queries_of_listeners_are_told_once_and_by_their_last_state(console: LocalConsole) -> None:
    queries = read_queries(console)
    assert len(queries) == 5, "the one of the pipeline's checkpoint is not told twice"
    clicks = queries["clicks"]
    assert (clicks["state"], clicks["lag"], clicks["rows_per_s"]) == ("idle", 40, 0.0)
    assert (clicks["group"], clicks["reads"], clicks["pipeline"]) == ("lake", "clicks", "")
    failed = queries[HOSTILE[1]]
    assert (failed["state"], failed["error"], failed["lag"]) == ("failed", HOSTILE[3], None)


def test_rejected_rows_are_counted_by_query_and_rule(console: LocalConsole) -> None:
    queries = read_queries(console)
    assert (queries["lake"]["rejected"], queries["lake"]["rejected_by"]) == (42, {"not_empty": 42})
    assert (queries["clicks"]["rejected"], queries["large"]["rejected"]) == (7, 0)
    (rule,) = console.get("/api/headrace/pipelines/orders")["rules"]
    assert (rule["name"], rule["rejected"]) == ("not_empty", 42)
    (row,) = console.get("/api/headrace/pipelines")
    assert row["rejected"] == 42
    browser = Browser(console)
    (shown,) = browser.get("/pipelines/orders?format=json&part=1&has_1=42").json
    assert shown["name"] == "lake"
    html = browser.text("/pipelines/orders")
    assert "Rejected</a></th>" in html, "of queries"
    assert "Rejected rows</a></th>" in html, "of rules"


def test_a_pipeline_tells_its_parts_and_no_secret(console: LocalConsole) -> None:
    answer = console.ask("GET", "/api/headrace/pipelines/orders")
    pipeline = answer.json
    assert b"a-password-of-tests" not in answer.body
    assert {node["id"] for node in pipeline["nodes"]} == {
        *("source:records", "table:customers", "step:parsed", "step:named"),
        *("sink:lake", "sink:large", "sink:bad"),
    }
    assert {"from": "step:parsed", "to": "sink:bad", "rule": "not_empty"} in pipeline["edges"]
    assert [rule["name"] for rule in pipeline["rules"]] == ["not_empty"]
    assert console.ask("GET", "/api/headrace/pipelines/none").status == 404
    (row,) = console.get("/api/headrace/pipelines")
    assert (row["queries"], row["lag"], row["pid"]) == (3, 120, os.getpid())


def test_the_tables_of_a_pipelines_page_are_sorted_filtered_and_files(
    console: LocalConsole,
) -> None:
    browser = Browser(console)
    at = "/pipelines/orders"
    names = [row["name"] for row in browser.get(f"{at}?format=json&part=1&sort_1=name").json]
    assert names == ["bad", "lake", "large"]
    (row,) = browser.get(f"{at}?format=json&part=1&has_1=running").json
    assert row["name"] == "lake"
    (rule,) = browser.get(f"{at}?format=json&part=2&has_2=not_empty").json
    assert rule["to"] == "bad"
    assert b"Rule,View" in browser.get(f"{at}?format=csv&part=2").body
    html = browser.text(f"{at}?sort_1=lag&sort_reverse_1=true")
    assert 'aria-sort="descending"' in html
    assert '<time datetime="' in html


def test_a_run_that_ended_without_a_word_is_told_as_killed(tmp_path: Path) -> None:
    from headrace.console.api.pipeline_files import read_pipelines

    with run_pipeline(tmp_path):
        (alive,) = read_pipelines([tmp_path])
    (dead,) = read_pipelines([tmp_path])
    assert (alive["state"], dead["state"]) == ("running", "killed")
    assert [query["state"] for query in dead["queries"]] == ["killed", "killed", "failed"]


def test_a_pipeline_whose_lock_may_not_be_read_is_not_told_as_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.console.api import pipeline_files

    lock = tmp_path / "lock"
    assert not pipeline_files.is_locked(lock)
    lock.touch()
    assert not pipeline_files.is_locked(lock)

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(type(lock), "open", refuse)
    assert pipeline_files.is_locked(lock)


def test_damaged_files_hide_no_others(tmp_path: Path) -> None:
    from headrace.console.api.pipeline_files import read_listener_queries, read_pipelines

    for name, text in (
        ("cut", '{"pipeline": "cut", "que'),
        ("list", "[1]"),
        ("odd", '{"pipeline": 7, "queries": [1, {"name": "../..", "lag": "x", "sinks": null}]}'),
        ("long", " " * (1 << 20) + "{}"),
    ):
        home = tmp_path / ".headrace" / name
        home.mkdir(parents=True)
        (home / "status.json").write_text(text)
    (pipeline,) = read_pipelines([tmp_path, tmp_path / "none"])
    assert (pipeline["name"], len(pipeline["queries"])) == ("7", 1)
    assert (pipeline["queries"][0]["checkpoint"], draw_pipeline(pipeline).boxes) == ("", [])
    file = tmp_path / "reports"
    file.write_bytes(b'\xff\n[]\n{"query": "q", "event": "idle", "owners": 3}\n' * 2)
    (query,) = read_listener_queries([file, tmp_path])
    assert (query["state"], query["owners"]) == ("idle", [])


def test_a_drawing_has_sources_left_and_sinks_right_also_of_a_circle(
    console: LocalConsole,
) -> None:
    drawing = draw_pipeline(console.get("/api/headrace/pipelines/orders"))
    at = {box.name: box.x for box in drawing.boxes}
    assert at["records"] < at["parsed"] < at["named"] < at["lake"] == at["bad"]
    assert {flow.rule for flow in drawing.flows} == {"", "not_empty"}
    assert max(box.y for box in drawing.boxes) + 44 < drawing.height
    passing = [flow for flow in drawing.flows if "h176" in flow.path]
    assert len(passing) == 2, "what skips a column passes it beside its parts"
    levels = compute_levels({"a": {}, "b": {}}, [("a", "b", ""), ("b", "a", "")])
    assert max(levels.values()) <= 2
