# SPDX-License-Identifier: Apache-2.0
"""Requests that are messages, and their answers: for clients of any version."""
