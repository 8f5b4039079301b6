# SPDX-License-Identifier: Apache-2.0
"""One request as its handler sees it: parameters, user, body, and the broker as that user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aiohttp.web_request import BaseRequest

    from headrace.console.auth.broker_login import Identity
    from headrace.console.auth.sessions import Session, Sessions
    from headrace.console.broker.link import BrokerLink
    from headrace.console.broker.user_link import UserLink
    from headrace.console.http.request_body import RequestBody
    from headrace.console.settings import ConsoleSettings
    from headrace.console.state.broker_mirror import BrokerMirror


class HttpCall:
    """A request with its user, and the parts of the console that handlers use."""

    def __init__(
        self,
        request: BaseRequest,
        path: Mapping[str, str],
        *,
        template: str,
        required_fields: tuple[str, ...],
        body: RequestBody,
        broker: UserLink,
        session: Session | None,
        link: BrokerLink,
        state: BrokerMirror,
        settings: ConsoleSettings,
        sessions: Sessions,
    ) -> None:
        # The request. Parameters are as the client sent them: pages call functions with arguments
        # instead of changing them.
        self.request = request
        self.path: Final = path  # The parameters of the route's path, by name.
        self.template = template  # The path of the route, with the names of its parameters.
        self.required_fields = required_fields  # The fields that the body must have.
        self.query: Final[Mapping[str, str]] = request.query
        self.body = body
        # The user.
        self.broker = broker  # Runs operations as the user.
        self.session = session  # The session of a browser; None for Basic and Bearer.
        # The console.
        self.link = link  # Runs operations as the console itself.
        self.state = state  # The sampled objects of the broker.
        self.settings = settings
        self.sessions = sessions

    @property
    def identity(self) -> Identity:
        """The user of the request; routes without login have none."""
        return self.broker.identity

    @property
    def csrf(self) -> str:
        """The token that forms and scripts send back; empty without a session."""
        return "" if self.session is None else self.session.csrf

    def notice(self, text: str) -> None:
        """Show a text on the next page."""
        if self.session is not None:
            self.session.notices.append(text)

    def notices(self) -> list[str]:
        """Return the texts for the next page, and forget them."""
        return [] if self.session is None else self.session.take_notices()
