# SPDX-License-Identifier: Apache-2.0
"""The journal of a virtual host on an engine that replicates it."""
