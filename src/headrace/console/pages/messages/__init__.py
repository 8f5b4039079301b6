# SPDX-License-Identifier: Apache-2.0
"""Messages on pages: looking at them, and moving, requeueing and deleting them."""
