# SPDX-License-Identifier: Apache-2.0
"""Parts that the handlers of several resources share.

:mod:`.body` reads fields of bodies, :mod:`.lookups` finds virtual hosts and objects,
:mod:`.samples` adds rates and samples to rows, :mod:`.own_counts` adds the key ``headrace``.
:mod:`.schemas` has the parts of JSON Schemas.
"""
