# SPDX-License-Identifier: Apache-2.0
"""The chart of a year of departure delays, drawn from the results of the pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import pandas as pd

mpl.use("Agg")
from matplotlib import dates, ticker
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ORIGINS = {"EWR": "Newark", "JFK": "Kennedy", "LGA": "LaGuardia"}
COLOURS = {"EWR": "#1b6ca8", "JFK": "#c8553d", "LGA": "#3a7d44"}
INK = "#333333"


def draw(windows: pd.DataFrame, alerts: pd.DataFrame, path: Path) -> None:
    """Draw the mean delay of each day and origin above the alerts of each week; save a PNG."""
    mean = (windows.minutes / windows.departed).astype(float).unstack("origin")
    with plt.rc_context({"font.size": 10, "axes.edgecolor": "#999999", "text.color": INK}):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(11, 7), height_ratios=(3, 2), sharex=True, layout="constrained"
        )
        _draw_delays(above, mean)
        _draw_alerts(below, alerts)
        figure.suptitle(
            "Departures from New York in 2013: how late, and how often very late",
            fontsize=14,
            fontweight="bold",
            x=0.053,
            ha="left",
        )
        figure.savefig(path, dpi=150)
        plt.close(figure)


def _draw_delays(axes: Axes, mean: pd.DataFrame) -> None:
    for origin, name in ORIGINS.items():
        colour = COLOURS[origin]
        axes.plot(mean.index, mean[origin], color=colour, alpha=0.25, linewidth=0.8)
        weekly = mean[origin].rolling(7, center=True, min_periods=4).mean()
        axes.plot(mean.index, weekly, color=colour, linewidth=2, label=f"{name} ({origin})")
    axes.axhline(0, color="#999999", linewidth=0.8)
    worst = mean.stack().idxmax()
    axes.annotate(
        f"{worst[0].day} {worst[0]:%B}, {ORIGINS[worst[1]]}: {mean.loc[worst]:.0f} min",
        (worst[0], mean.loc[worst]),
        xytext=(8, -6),
        textcoords="offset points",
        ha="left",
        fontsize=9,
    )
    axes.set_ylabel("mean departure delay, minutes")
    axes.set_title("mean per day (thin) and over seven days (bold)", loc="left", fontsize=10)
    axes.legend(frameon=False, ncols=3, loc="upper right")
    _simplify_axes(axes)


def _draw_alerts(axes: Axes, alerts: pd.DataFrame) -> None:
    weekly = (
        alerts.groupby([pd.Grouper(key="day", freq="W-MON", label="left", closed="left"), "origin"])
        .size()
        .unstack("origin", fill_value=0)
    )
    bottom = pd.Series(0, index=weekly.index)
    for origin in ORIGINS:
        axes.bar(
            weekly.index,
            weekly[origin],
            width=6,
            align="edge",
            bottom=bottom,
            color=COLOURS[origin],
        )
        bottom += weekly[origin]
    axes.set_ylabel("alerts per week")
    axes.set_title("flights that left more than three hours late", loc="left", fontsize=10)
    axes.xaxis.set_major_locator(dates.MonthLocator())
    axes.xaxis.set_minor_locator(dates.MonthLocator(bymonthday=16))
    axes.xaxis.set_major_formatter(ticker.NullFormatter())
    axes.xaxis.set_minor_formatter(dates.DateFormatter("%b"))
    axes.set_xlim(pd.Timestamp("2013-01-01"), pd.Timestamp("2014-01-01"))
    _simplify_axes(axes)


def _simplify_axes(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", which="minor", length=0)
