# SPDX-License-Identifier: Apache-2.0
"""HTTP: connections, routes, limits, the query and body of a request, and its answer.

:mod:`.server` has the checks of every request, in their order.
"""
