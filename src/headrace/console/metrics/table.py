# SPDX-License-Identifier: Apache-2.0
"""The routes of the port of the metrics."""

from headrace.console.http.routes import NOBODY, Parameter, Route
from headrace.console.metrics import aggregated, objects

QUERY = (
    Parameter("family", "A family of metrics; several are allowed."),
    Parameter("vhost", "Only objects of this virtual host; several are allowed."),
    Parameter("queue", "Only queues whose name matches this pattern of RE2."),
)
ROUTES = (
    Route("GET", "/metrics", aggregated.show, NOBODY, "", "The broker as a whole, for Prometheus."),
    Route("GET", "/metrics/per-object", objects.per_object, NOBODY, "", "Object by object."),
    Route(
        "GET",
        "/metrics/detailed",
        objects.detailed,
        NOBODY,
        "",
        "Families that the query names.",
        QUERY,
    ),
    Route(
        "GET",
        "/metrics/memory-breakdown",
        aggregated.memory_breakdown,
        NOBODY,
        "",
        "Where the memory goes.",
    ),
)
