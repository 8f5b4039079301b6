# SPDX-License-Identifier: Apache-2.0
"""The user of a request, and protection from requests of other sites.

:mod:`.basic_bearer` finds the user by the Authorization header, :mod:`.sessions` by the cookie of a
browser (:mod:`.cookies`). :mod:`.oauth` redirects browsers to an authorization server. All logins
are checked by the broker (:mod:`.broker_login`). :mod:`.csrf` refuses requests of other sites.
"""
