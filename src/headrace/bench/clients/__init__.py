# SPDX-License-Identifier: Apache-2.0
"""The same work by our client and by others."""
