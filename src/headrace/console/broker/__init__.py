# SPDX-License-Identifier: Apache-2.0
"""The connection to the broker: operations of its management socket, and their errors."""
