# SPDX-License-Identifier: Apache-2.0
"""The state of a pipeline, for people and for programs."""
