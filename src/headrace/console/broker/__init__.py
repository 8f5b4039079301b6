# SPDX-License-Identifier: Apache-2.0
"""The broker as the console sees it: the operations of the management socket."""
