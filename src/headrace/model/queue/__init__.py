# SPDX-License-Identifier: Apache-2.0
"""The queue: ready messages, retention, dispatch, flow control."""
