# SPDX-License-Identifier: Apache-2.0
"""The routes of the port of the metrics."""

from headrace.console.http.routes import Route

ROUTES: tuple[Route, ...] = ()
