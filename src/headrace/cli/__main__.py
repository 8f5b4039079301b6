# SPDX-License-Identifier: Apache-2.0
"""``python -m headrace.cli``."""

from headrace.cli import main

main(prog_name="headrace")
