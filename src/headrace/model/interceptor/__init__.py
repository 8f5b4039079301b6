# SPDX-License-Identifier: Apache-2.0
"""What sees or changes messages on their way through exchanges."""
