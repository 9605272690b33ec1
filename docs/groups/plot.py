#!/usr/bin/env python3
"""Draws a column of a multicast plan's rows against the number of members.

Input: the CSV of `denrei sim --csv crates/sim/plans/multicast.toml` (or multicast-shared.toml); output: an
SVG with a panel for each loss and a line for each scheme, both axes logarithmic, nothing at the foot; numbers of
members after that choose rows.

    denrei sim --csv crates/sim/plans/multicast.toml > independent.csv
    python3 docs/groups/plot.py independent.csv loss reports_per_100 docs/groups/reports.svg
"""

import csv
import math
import sys

SCHEMES = ["all-ack", "thinned", "staggered", "suppressed", "tree", "parity"]
COLOURS = ["#888888", "#1f77b4", "#17becf", "#2ca02c", "#ff7f0e", "#d62728"]
# What columns are called in a picture, where that is not their name.
NAMES = {"reports_per_100": "reports for 100 symbols", "shared_loss": "lost by all", "loss": "lost by each"}
PANEL_WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 260, 220, 66, 50, 36


def panel(rows, column, x0, low, high):
    """The lines of one loss."""
    members = sorted({int(row["hosts"]) - 1 for row in rows})
    first, last = math.log10(members[0]), math.log10(members[-1])

    def at(count, value):
        # One number of members stands in the middle.
        across = (math.log10(count) - first) / (last - first) if last > first else 0.5
        x = x0 + across * PANEL_WIDTH
        share = (math.log10(max(value, low)) - math.log10(low)) / (math.log10(high) - math.log10(low))
        return f"{x:.1f},{TOP + PANEL_HEIGHT * (1 - share):.1f}"

    parts = [f'<rect x="{x0}" y="{TOP}" width="{PANEL_WIDTH}" height="{PANEL_HEIGHT}" fill="none" stroke="#444"/>']
    for count in members:
        x = at(count, low).split(",")[0]
        parts.append(f'<text x="{x}" y="{TOP + PANEL_HEIGHT + 16}" text-anchor="middle">{count}</text>')
    for scheme, colour in zip(SCHEMES, COLOURS):
        points = sorted(
            (int(row["hosts"]) - 1, float(row[column])) for row in rows if row["feedback"] == scheme
        )
        # A line of one point is a dot.
        line = " ".join(at(count, value) for count, value in points * (2 if len(points) == 1 else 1))
        parts.append(
            f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2" stroke-linecap="round"/>'
        )
    return parts


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    source, loss, column, target, *chosen = sys.argv[1:]
    with open(source, newline="", encoding="utf-8") as file:
        # One that did not end in its time says nothing.
        rows = [row for row in csv.DictReader(file) if row["finished"] == "true"]
    if chosen:
        rows = [row for row in rows if str(int(row["hosts"]) - 1) in chosen]
    if not rows:
        sys.exit(f"{source} has no row that finished{' of so many members: ' + ', '.join(chosen) if chosen else ''}")
    losses = sorted({float(row[loss]) for row in rows})
    values = [float(row[column]) for row in rows]
    low = 10 ** math.floor(math.log10(min((value for value in values if value > 0), default=1)))
    high = 10 ** math.ceil(math.log10(max(max(values), 10 * low)))
    width = LEFT + len(losses) * (PANEL_WIDTH + GAP)
    height = TOP + PANEL_HEIGHT + 70
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        'font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    decades = range(round(math.log10(low)), round(math.log10(high)) + 1)
    for decade in decades:
        y = TOP + PANEL_HEIGHT * (1 - (decade - decades[0]) / (decades[-1] - decades[0]))
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{10 ** decade:,.{max(-decade, 0)}f}</text>')
        end = width - GAP
        parts.append(f'<line x1="{LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>')
    for index, share in enumerate(losses):
        x0 = LEFT + index * (PANEL_WIDTH + GAP)
        parts += panel([row for row in rows if float(row[loss]) == share], column, x0, low, high)
        title = f"{NAMES.get(column, column)}, {share:.1%} {NAMES[loss]}"
        parts.append(f'<text x="{x0 + PANEL_WIDTH / 2}" y="{TOP - 8}" text-anchor="middle">{title}</text>')
    for index, (scheme, colour) in enumerate(zip(SCHEMES, COLOURS)):
        x = LEFT + index * 110
        parts.append(f'<line x1="{x}" x2="{x + 24}" y1="18" y2="18" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 30}" y="22">{scheme}</text>')
    parts.append(f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle">members</text></svg>')
    with open(target, "w", encoding="utf-8") as file:
        file.write("\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
