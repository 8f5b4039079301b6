# SPDX-License-Identifier: Apache-2.0
"""Write docs/settings.md from the table of settings.

python tools/gen_settings.py            # write it
python tools/gen_settings.py --check    # exit 1 when it is not what would be written
"""

import sys
from pathlib import Path

from headrace.server.settings import manual

PAGE = Path(__file__).parent.parent / "docs" / "settings.md"


def main() -> int:
    text = manual()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() == text:
        return 0
    sys.stderr.write("docs/settings.md is not what the table of settings says: run make docs\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
