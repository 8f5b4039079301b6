# SPDX-License-Identifier: Apache-2.0
"""The pages of distributed transactions: their list, and deciding one that is in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.console.api import transactions
from headrace.console.api.common.lookups import row_in_path
from headrace.console.broker.lists import TRANSACTIONS
from headrace.console.pages.actions import Field
from headrace.console.pages.columns import Column
from headrace.console.pages.command_lines import command_line, vhost_url
from headrace.console.pages.links import FormAddress, path_to
from headrace.console.pages.listings import ListPage
from headrace.console.pages.resource_pages import ResourcePages
from headrace.console.pages.texts import pluralize

if TYPE_CHECKING:
    from headrace.console.api.common.body import Body
    from headrace.console.http.call import HttpCall
    from headrace.console.pages.actions import Values
    from headrace.untyped import JsonObject

DECISIONS = ("rollback", "commit", "forget")
PAGES = ResourcePages()


def transaction_address(row: JsonObject) -> str:
    """Return the address of a transaction's page."""
    return path_to("transactions", row["vhost"], row["xid"])


PAGES.add(
    ListPage(
        path="/transactions",
        title="Transactions",
        rows=transactions.list_transactions,
        columns=(
            Column("Id", "xid"),
            Column("Virtual host", "vhost"),
            Column("State", "state", "state"),
            Column("Since", "since", "time"),
            Column("Publishes", "publishes", "number"),
            Column("Settles", "settles", "number"),
            Column("Sessions", "sessions", "number"),
        ),
        row_address=FormAddress(transaction_address),
        about="Branches of distributed transactions. A prepared one is in doubt: its messages wait "
        "for the coordinator, or for an operator's decision.",
        command=command_line("list", "transactions"),
        empty="No open transactions.",
    ),
)


async def decision_impact(call: HttpCall, vhost: str, xid: str) -> str:
    """Describe the messages that wait for a decision."""
    row = await row_in_path(call, TRANSACTIONS)
    if row is None:
        return "The transaction no longer exists."
    return (
        f"The transaction is {row['state']} since {row['since']}: "
        f"{pluralize(row['publishes'], 'published message')} and "
        f"{pluralize(row['settles'], 'acknowledgement')} wait for its outcome."
    )


def decide_command(values: Values, vhost: str, xid: str) -> str:
    """Return the command line that decides a transaction."""
    decision, heuristic = values.get("what") or DECISIONS[0], bool(values.get("heuristic"))
    return command_line("transaction", decision, xid, heuristic=heuristic, url=vhost_url(vhost))


@PAGES.action(
    "/transactions/{vhost}/{xid}",
    "Decide transaction {xid}",
    back="/transactions",
    notice="Transaction {xid}: {what} is done.",
    command=decide_command,
    fields=(
        Field("what", "Decision", "choice", DECISIONS, required=True),
        Field(
            "heuristic",
            "Heuristic: decide in place of the coordinator, which is notified later",
            "flag",
        ),
    ),
    confirm="{xid}",
    impact=decision_impact,
    parent=("Transactions", "/transactions"),
    button="Decide",
    danger=True,
)
async def decide(call: HttpCall, form: Body, vhost: str, xid: str) -> None:
    """Decide the transaction of a page."""
    decision, heuristic = form.text("what"), form.flag("heuristic")
    await transactions.decide_transaction(call, vhost, xid, decision=decision, heuristic=heuristic)
