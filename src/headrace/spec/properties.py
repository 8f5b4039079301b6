# SPDX-License-Identifier: Apache-2.0
"""The content classes of AMQP 0-8, 0-9 and 0-9-1, and their properties."""

from __future__ import annotations

from headrace.spec.tables import V0_8, V0_9, ContentClass, Version, only, since, until

# fmt: off
CONTENT_CLASSES: tuple[ContentClass, ...] = (
    # 0-9-1 reserves the last property of `basic`, which was `cluster-id`.
    ContentClass("basic", 60,
                 "content-type:shortstr content-encoding:shortstr headers:table "
                 "delivery-mode:octet priority:octet correlation-id:shortstr reply-to:shortstr "
                 "expiration:shortstr message-id:shortstr timestamp:timestamp type:shortstr "
                 "user-id:shortstr app-id:shortstr cluster-id:shortstr",
                 since(V0_8)),
    ContentClass("file", 70,
                 "content-type:shortstr content-encoding:shortstr headers:table priority:octet "
                 "reply-to:shortstr message-id:shortstr filename:shortstr timestamp:timestamp "
                 "cluster-id:shortstr",
                 until(V0_9)),
    ContentClass("stream", 80,
                 "content-type:shortstr content-encoding:shortstr headers:table priority:octet "
                 "timestamp:timestamp",
                 until(V0_9)),
    ContentClass("tunnel", 110,
                 "headers:table proxy-name:shortstr data-name:shortstr durable:octet "
                 "broadcast:octet",
                 until(V0_9)),
    ContentClass("test", 120, "", only(V0_8)),
)
# fmt: on


def content_classes(version: Version) -> dict[int, ContentClass]:
    """Return the content classes of one version by class id."""
    return {row.id: row for row in CONTENT_CLASSES if version in row.versions}
