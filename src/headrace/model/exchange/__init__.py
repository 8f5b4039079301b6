# SPDX-License-Identifier: Apache-2.0
"""Exchange types, and bindings."""
