# SPDX-License-Identifier: Apache-2.0
"""The routes of the port of the metrics."""

from headrace.console.http.routes import NOBODY, Route
from headrace.console.metrics import aggregated

ROUTES = (
    Route("GET", "/metrics", aggregated.show, NOBODY, "", "The broker as a whole, for Prometheus."),
)
