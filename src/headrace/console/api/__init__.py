# SPDX-License-Identifier: Apache-2.0
"""The handlers of ``/api/…``, by area. See :mod:`headrace.console` for how to add one."""
