"""Pictures of what the measurements wrote as JSON lines: the latest row of each case.

Claims a second against claimers, search time against size, page time against sessions, and cost against messages kept.

Run: python bench/plots.py [--results bench/results] [--out bench/results]
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot

RESULTS = Path(__file__).resolve().parent / "results"
FLOORS = {"floor", "bare", "bare driver"}  # drawn as dashes


class Picture(NamedTuple):
    """One file: its panels by title, each with the rows it shows.

    Attributes:
        subject: which measurement's rows.
        panels: title → pattern of a case; its group ``x`` is the place on the axis, else the row's side is.
        figure: name of the row's figure.
        scale: what the figure is multiplied by.
        x: what the axis says.
        y: what the other axis says.
    """

    subject: str
    panels: dict[str, str]
    figure: str
    scale: float
    x: str
    y: str


PICTURES = {
    "claims": Picture(
        "claim",
        {
            "SQLite, processes": r"sqlite (?P<x>\d+)x1 processes normal",
            "PostgreSQL, processes": r"postgres (?P<x>\d+)x1 normal",
        },
        "rate",
        1,
        "claimers",
        "claims a second",
    ),
    "search": Picture(
        "search",
        {
            f"{name}, {mode}": rf"{dialect} (?P<x>[\d,]+) {mode}"
            for name, dialect in (("SQLite", "sqlite"), ("PostgreSQL", "postgres"))
            for mode in ("any", "all", "session")
        },
        "p95_ms",
        1,
        "messages",
        "95th of a hundred searches, ms",
    ),
    "pages": Picture(
        "sessions",
        {
            f"{name}, {what}": rf"{dialect} {what}, (?P<x>[\d,]+) sessions"
            for name, dialect in (("SQLite", "sqlite"), ("PostgreSQL", "postgres"))
            for what in ("first page", "page by key")
        },
        "p50_us",
        0.001,
        "sessions",
        "a page of 50, ms",
    ),
    "growth": Picture(
        "growth",
        {what: rf"{what}, (?P<side>.+)" for what in ("add", "page", "scoped search", "claim")},
        "p50_us",
        0.001,
        "messages in the file",
        "p50 of a call, ms",
    ),
}


def rows_of(folder: Path, subject: str) -> list[dict[str, Any]]:
    """The rows of a measurement, the latest of each case and side last."""
    path = folder / f"{subject}.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = [json.loads(line) for line in lines]
    latest = {(row["case"], row["side"]): row for row in rows if row["kind"] == "row"}
    return list(latest.values())


def curves(rows: list[dict[str, Any]], picture: Picture, pattern: str) -> dict[str, dict[int, float]]:
    """By side the points of one panel."""
    found: dict[str, dict[int, float]] = {}
    for row in rows:
        match = re.fullmatch(pattern, row["case"])
        if not match or picture.figure not in row:
            continue
        groups = match.groupdict()
        place = groups.get("x") or row["side"]
        points = found.setdefault(groups.get("side") or row["side"], {})
        points[int(place.replace(",", ""))] = row[picture.figure] * picture.scale
    return found


def draw(rows: list[dict[str, Any]], picture: Picture, path: Path) -> bool:
    """Draw one file; False when there are no rows for it."""
    panels = {title: curves(rows, picture, pattern) for title, pattern in picture.panels.items()}
    panels = {title: found for title, found in panels.items() if found}
    if not panels:
        return False
    across = min(3, len(panels)) if len(panels) != 4 else 2
    down = -(-len(panels) // across)
    figure, axes = pyplot.subplots(down, across, figsize=(4.6 * across, 3.6 * down), squeeze=False)
    for axis, (title, found) in zip(axes.flat, panels.items(), strict=False):
        for side, points in found.items():
            style = "kx--" if side in FLOORS else "o-"  # with marks: one size is a point
            axis.plot(sorted(points), [points[x] for x in sorted(points)], style, label=side, markersize=4)
        places = sorted({x for points in found.values() for x in points})
        axis.set(title=title, xlabel=picture.x, ylabel=picture.y, xscale="log")
        axis.set_xticks(places, [f"{x:,}" for x in places])
        axis.minorticks_off()
        axis.set_ylim(0, 1.15 * max(y for points in found.values() for y in points.values()))
        axis.legend(fontsize="small")
    for axis in list(axes.flat)[len(panels) :]:
        axis.set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=80)
    pyplot.close(figure)
    return True


def main() -> None:
    """Draw what there are rows for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the JSON lines")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the pictures")
    options = parser.parse_args()
    rows = {picture.subject: rows_of(options.results, picture.subject) for picture in PICTURES.values()}
    if not any(rows.values()):
        raise SystemExit(f"no results in {options.results}: run make bench first")
    options.out.mkdir(parents=True, exist_ok=True)
    for name, picture in PICTURES.items():
        path = options.out / f"{name}.png"
        drawn = draw(rows[picture.subject], picture, path)
        print(f"drew {path}" if drawn else f"no rows of {picture.subject}.py in {options.results}: no {name}.png")


if __name__ == "__main__":
    main()
