# SPDX-License-Identifier: Apache-2.0
"""States of pipelines and reports of query listeners, read from their files.

A pipeline's state directory has ``status.json``, ``graph.json``, ``lock`` and ``checkpoints``; a
listener writes a line of JSON for each event of a query. A pipeline whose status says that it runs
is ``killed`` if no process has its lock.
"""

from __future__ import annotations

import fcntl
import re
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.console.api.logs import parse_json_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.untyped import JsonObject

FILE_MAX = 1 << 20  # Bytes that are read of a file; of a listener's file the last ones.
PIPELINES_MAX = 200
QUERIES_MAX = 1000
ACTIVE = ("starting", "running", "stopping")  # States of a pipeline whose process runs.
QUERY_NUMBERS = ("rows_per_s", "processed_per_s", "batch", "lag")
# The states of queries, by the last event that a listener reported.
STATES = {"started": "starting", "progress": "running", "idle": "idle"}
URL_PASSWORD = re.compile(r"(\w+://[^\s:/@]*):[^\s/@]*@")


def read_pipelines(places: Iterable[Path]) -> list[JsonObject]:
    """Return the pipelines of some directories, each with its queries and its parts."""
    pipelines: list[JsonObject] = []
    names: set[str] = set()
    for home in state_directories(places):
        if len(pipelines) == PIPELINES_MAX:
            break
        pipeline = read_pipeline(home)
        if pipeline is not None:
            while pipeline["name"] in names:  # Names of pipelines may repeat in other directories.
                pipeline["name"] += "'"
            names.add(pipeline["name"])
            pipelines.append(pipeline)
    return pipelines


def state_directories(places: Iterable[Path]) -> Iterator[Path]:
    """Yield the places that are state directories, and those in their folders ``.headrace``."""
    for place in places:
        if (place / "status.json").is_file():
            yield place
        else:
            yield from sorted(file.parent for file in place.glob(".headrace/*/status.json"))


def read_pipeline(home: Path) -> JsonObject | None:
    """Return the pipeline of a state directory; None without one."""
    status = read_object(home / "status.json")
    if status is None:
        return None
    state = str(status.get("state", ""))
    if state in ACTIVE and not is_locked(home / "lock"):
        state = "killed"
    statuses = [query for query in object_items(status.get("queries")) if "name" in query]
    queries = [pipeline_query(home, query, state) for query in statuses[:QUERIES_MAX]]
    graph = read_object(home / "graph.json") or {}
    return {
        "name": str(status.get("pipeline") or home.name),
        "state": state,
        "file": str(status.get("file", "")),
        "directory": str(home),
        "started": str(status.get("started", "")),
        "updated": str(status.get("updated", "")),
        "pid": status.get("pid"),
        "error": hide_passwords(status.get("error")),
        "queries": queries,
        "nodes": object_items(graph.get("nodes")),
        "edges": object_items(graph.get("edges")),
        "rules": [
            {**rule, "rejected": most_rejected(queries, rule.get("name"))}
            for rule in object_items(graph.get("rules"))
        ],
    }


def most_rejected(queries: list[JsonObject], rule: object) -> int:
    """Return the number of rows that a rule rejected.

    Each query after the rule counts the same rows, so the largest count is the number.
    """
    return max((query["rejected_by"].get(str(rule), 0) for query in queries), default=0)


def pipeline_query(home: Path, status: JsonObject, state: str) -> JsonObject:
    """Return a query of a pipeline, which has the state ``state``."""
    name = str(status["name"])
    checkpoint = home / "checkpoints" / Path(name).name  # Never outside the folder.
    own = str(status.get("state", ""))
    return {
        "name": name,
        "id": str((read_object(checkpoint / "metadata") or {}).get("id", "")),
        "state": "killed" if state == "killed" and own in (*ACTIVE, "idle") else own,
        **{name: status.get(name) for name in QUERY_NUMBERS},
        "rows": status.get("rows"),
        **rejected_rows(status),
        "sinks": text_items(status.get("sinks")),
        "checkpoint": str(checkpoint) if checkpoint.name == name and checkpoint.is_dir() else "",
        "owners": group_owners(checkpoint / "offsets"),
        "error": hide_passwords(status.get("error")),
    }


def rejected_rows(status: JsonObject) -> JsonObject:
    """Return the rows that rules rejected, by rule and in total."""
    rejected = status.get("rejected")
    rules = rejected if isinstance(rejected, dict) else {}
    rows = {str(name): rows for name, rows in rules.items() if isinstance(rows, int)}
    return {"rejected_by": rows, "rejected": sum(rows.values())}


def group_owners(folder: Path) -> list[str]:
    """Return the owners of a query's groups, from the newest batch of its checkpoint."""
    try:
        number = max(int(file.name) for file in folder.iterdir() if file.name.isdecimal())
        lines = (folder / str(number)).read_bytes()[:FILE_MAX].splitlines()[2:]
    except (OSError, ValueError):
        return []
    # Version 2 of Spark's log has the name of the source before its offset.
    offsets = [parse_json_line(line[max(0, line.find(b"{")) :]) for line in lines]
    return [
        str(offset["owner"]) for offset in offsets if offset is not None and offset.get("owner")
    ]


def read_listener_queries(places: Iterable[Path]) -> list[JsonObject]:
    """Return the queries in the files of listeners."""
    reports: dict[str, JsonObject] = {}
    for place in places:
        for report in read_reports(place):
            query, event = str(report.get("query", "")), report.get("event")
            if not query or (query not in reports and len(reports) == QUERIES_MAX):
                continue
            reports[query] = report if event == "started" else {**reports.get(query, {}), **report}
    return [listener_query(query, report) for query, report in reports.items()]


def listener_query(query: str, report: JsonObject) -> JsonObject:
    """Return a query from the last report of a listener."""
    error = hide_passwords(report.get("error"))
    return {
        "name": str(report.get("name") or query),
        "id": query,
        "state": STATES.get(str(report.get("event")), "failed" if error else "stopped"),
        **{name: report.get(name) for name in QUERY_NUMBERS},
        "lag": report.get("lag_records", 0 if "batch" in report else None),
        "updated": str(report.get("moment", "")),
        "owners": text_items(report.get("owners")),
        **rejected_rows(report),
        "error": error,
    }


def read_reports(path: Path) -> Iterator[JsonObject]:
    """Yield the last reports in a listener's file."""
    if not path.is_file():
        return
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - FILE_MAX))
            lines = file.read(FILE_MAX).splitlines()
    except OSError:
        return
    for line in lines[size > FILE_MAX :]:  # The first one may be cut.
        report = parse_json_line(line)
        if report is not None:
            yield report


def read_object(path: Path) -> JsonObject | None:
    """Return the JSON object in a file; None if there is none, or the file is too long."""
    try:
        if path.is_file() and path.stat().st_size <= FILE_MAX:
            return parse_json_line(path.read_bytes())
    except OSError:
        pass
    return None


def object_items(value: object) -> list[JsonObject]:
    """Return the items of a list that are objects; none if the value is not a list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def text_items(value: object) -> list[str]:
    """Return the items of a list as texts; none if the value is not a list."""
    return [str(item) for item in value] if isinstance(value, list) else []


def is_locked(lock: Path) -> bool:
    """Return True if a process holds the lock of a pipeline, that is, runs it, or may hold it.

    A pipeline that starts meanwhile tries again, as the lock is only shared here.
    """
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:  # Another process holds it, or this one may not look.
        return True
    return False


def hide_passwords(value: object) -> str:
    """Return a text without the passwords of URLs in it."""
    return URL_PASSWORD.sub(r"\1:***@", str(value or ""))
