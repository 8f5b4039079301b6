# SPDX-License-Identifier: Apache-2.0
"""The management of Qpid's C++ broker: QMF, version 2, as far as its tools use it.

- `agent`: answers the requests of a virtual host
- `request`, `reply`: a request and its user; the answer
- `objects`: queues, exchanges, connections and others, with their statistics
- `methods`: methods of objects, such as create and delete
- `events`: events, on ``qmf.default.topic``
"""
