# SPDX-License-Identifier: Apache-2.0
"""Acting as a user on the management socket: logins and tickets."""
