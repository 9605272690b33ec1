#!/usr/bin/env python3
"""Prints the tables of docs/groups.md from the rows of multicast plans.

Input: the CSV of `denrei sim --csv` of one or several plans, joined; output: a table in Markdown for each
number of members.

    python3 docs/groups/table.py independent.csv loss
"""

import csv
import sys

SCHEMES = ["all-ack", "thinned", "staggered", "suppressed", "tree", "parity"]
COLUMNS = [
    ("reports / 100, no loss", "reports_per_100", 0.0),
    ("0.1 %", "reports_per_100", 0.001),
    ("1 %", "reports_per_100", 0.01),
    ("5 %", "reports_per_100", 0.05),
    ("NAKs at 1 %", "naks", 0.01),
    ("repairs at 1 %", "repairs", 0.01),
    ("parities at 1 %", "parities", 0.01),
    ("time without loss, ms", "time_s", 0.0),
    ("at 1 %", "time_s", 0.01),
]


def shown(row, column):
    """A figure as the tables have it; a run that did not finish has none."""
    if row is None:
        return "–"
    if row["finished"] != "true":
        return "not done"
    value = float(row[column])
    if column == "time_s":
        value *= 1000
    return f"{value:.2f}" if value < 10 and value != int(value) else f"{value:.0f}"


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    source, loss = sys.argv[1:]
    with open(source, newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["hosts"] != "hosts"]
    for members in sorted({int(row["hosts"]) - 1 for row in rows}):
        print(f"### N = {members:,}\n")
        print("| scheme | " + " | ".join(name for name, _, _ in COLUMNS) + " |")
        print("|---" * (len(COLUMNS) + 1) + "|")
        for scheme in SCHEMES:
            here = [row for row in rows if int(row["hosts"]) - 1 == members and row["feedback"] == scheme]
            cell = {float(row[loss]): row for row in here}
            if cell:
                figures = [shown(cell.get(share), column) for _, column, share in COLUMNS]
                print(f"| {scheme} | " + " | ".join(figures) + " |")
        print()


if __name__ == "__main__":
    main()
