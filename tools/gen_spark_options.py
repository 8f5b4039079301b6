# SPDX-License-Identifier: Apache-2.0
"""Write docs/spark-options.md from the table of options of the Spark data source.

python tools/gen_spark_options.py            # write it
python tools/gen_spark_options.py --check    # exit 1 when it is not what would be written
"""

import sys
from pathlib import Path

from headrace.spark.manual import manual

PAGE = Path(__file__).parent.parent / "docs" / "spark-options.md"


def main() -> int:
    text = manual()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text)
        return 0
    if PAGE.read_text() == text:
        return 0
    sys.stderr.write("docs/spark-options.md is not what the table says: run make docs\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
