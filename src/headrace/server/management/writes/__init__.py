# SPDX-License-Identifier: Apache-2.0
"""Operations of the management socket that change definitions, and that handle messages."""
