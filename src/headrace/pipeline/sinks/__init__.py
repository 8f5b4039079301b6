# SPDX-License-Identifier: Apache-2.0
"""The sinks of pipelines, which write each batch exactly once."""
