"""The examples run, and draw what they measure."""

import os
import pathlib
import subprocess
import sys
from xml.etree import ElementTree

EXAMPLES = pathlib.Path(__file__).parent.parent / "examples"


def test_the_notebook_measures_and_plots(tmp_path):
    figure = tmp_path / "measured.svg"
    environment = os.environ | {"MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, EXAMPLES / "measure.py", figure],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for name, rows in {"denrei": 4, "TCP": 4, "one by one": 4, "group": 4}.items():
        assert sum(line.startswith(name) for line in lines) == rows, done.stdout
    # What was sent to eight, in MB: eight times as much by itself, hardly more than once to a group.
    sent = {line.split(" 8 nodes")[0].strip(): float(line.split()[-3]) for line in lines if " 8 nodes" in line}
    assert sent["one by one"] == 16 and 2 <= sent["group"] < 6
    drawn = ElementTree.parse(figure).getroot()
    texts = [comment for comment in figure.read_text().split("<!--")[1:] if "MB sent" in comment]
    assert drawn.tag.endswith("svg") and texts
