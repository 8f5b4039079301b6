# SPDX-License-Identifier: Apache-2.0
"""The user of a request, and the origins that may change anything.

:mod:`.basic_bearer` reads the Authorization header, :mod:`.sessions` and :mod:`.cookies` know
browsers, :mod:`.oauth` leads them to an authorization server. All of them log in at the broker
(:mod:`.broker_login`). :mod:`.csrf` refuses requests of other sites.
"""
