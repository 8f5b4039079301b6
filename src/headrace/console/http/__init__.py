# SPDX-License-Identifier: Apache-2.0
"""HTTP: connections, routes, limits, the query and body of a request, and its answer.

:mod:`.server` checks every request, and runs the handler of its route (:mod:`.routes`) with a
:mod:`.call`. :mod:`.respond` makes the response of the value that the handler returns
(:mod:`.answers`).
"""
