# SPDX-License-Identifier: Apache-2.0
"""One neutral set of properties, and the ways to and from each version's own."""
