# SPDX-License-Identifier: Apache-2.0
"""Commands for streams, groups, leases, sinks and transactions."""
