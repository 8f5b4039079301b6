# SPDX-License-Identifier: Apache-2.0
"""The management of Qpid's C++ broker: its framework QMF, version 2, as far as its tools ask it."""
