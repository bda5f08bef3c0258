"""Draws docs/images/flights.svg: what the flights job sees for each waiting time.

    python3 scripts/plot_flights.py PATH_TO_THALWEG

Runs the job with the watermark "departure minus W" for nine values of W, counts late rows and finds
the worst hour with at least ten flights. Standard library only; every number drawn was measured.
"""

import csv
import io
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLIGHTS = ROOT / "examples" / "flights"
TOTAL = 328_521
# Colours of a dark page; those of a light one stand in the elements.
DARK = ('<style>@media (prefers-color-scheme:dark){.bg{fill:#18212c}line{stroke:#2c3947}text[fill="#334"]{fill:#e3eaf2}'
        'text[fill="#667"]{fill:#a3b3c4}text[fill="#a33"]{fill:#f09a9a}text[fill="#c5552d"]{fill:#f0a066}}</style>')
WAITS = [("0", "'0' HOUR", 0), ("15 min", "'15' MINUTE", 0.25), ("30 min", "'30' MINUTE", 0.5),
         ("1 h", "'1' HOUR", 1), ("2 h", "'2' HOUR", 2), ("3 h", "'3' HOUR", 3),
         ("6 h", "'6' HOUR", 6), ("12 h", "'12' HOUR", 12), ("24 h", "'24' HOUR", 24)]


def measure(binary, interval):
    """(late rows, worst mean, its label) with this waiting time."""
    text = (FLIGHTS / "delays.sql").read_text()
    text = re.sub(r"departed - INTERVAL '1' HOUR", f"departed - INTERVAL {interval}", text)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "departures.parquet").symlink_to(FLIGHTS / "departures.parquet")
        job = folder / "job.sql"
        job.write_text(text)
        run = subprocess.run(
            [binary, "run", "--allow-path", str(FLIGHTS), "--format", "csv", str(job)],
            check=True, capture_output=True, text=True)
        late = sum(1 for _ in open(folder / "late_departures.csv")) - 1
        worst = next(csv.DictReader(io.StringIO(run.stdout)))
    label = f"{worst['origin']} {worst['hour_start'][:16]}, {worst['flights']} flights"
    return late, float(worst["mean_delay"]), label


def text(x, y, content, size=12, anchor="middle", fill="#334", weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{fill}" font-weight="{weight}">{content}</text>')


def draw(rows):
    """Bars: worst hour's mean delay. Line: share of flights that came in time."""
    width, height, left, top, bottom = 860, 420, 70, 70, 70
    plot_height, step = height - top - bottom, (width - 2 * left) / len(rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'font-family="system-ui, sans-serif">{DARK}<rect class="bg" width="100%" height="100%" fill="#fff"/>',
             text(width / 2, 28, "How long to wait? New York flights of 2013", 17, weight="bold"),
             text(width / 2, 48, "bars: mean delay of the worst hour that the job sees · "
                  "line: share of flights that came in time", 12, fill="#667")]
    for tick in range(0, 301, 50):
        y = top + plot_height * (1 - tick / 300)
        parts.append(f'<line x1="{left}" x2="{width - left}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e4e8ee"/>')
        parts.append(text(left - 8, y + 4, f"{tick} min", 11, "end", "#667"))
    points = []
    for n, (name, _, late, mean, _) in enumerate(rows):
        x = left + step * (n + 0.5)
        y = top + plot_height * (1 - mean / 300)
        parts.append(f'<rect x="{x - step * 0.3:.1f}" y="{y:.1f}" width="{step * 0.6:.1f}" '
                     f'height="{top + plot_height - y:.1f}" fill="#7fb2d9" rx="3"/>')
        parts.append(text(x, y - 6 if mean < 255 else y + 16, f"{mean:.0f}", 12, weight="bold"))
        parts.append(text(x, height - bottom + 20, f"W = {name}", 12))
        parts.append(text(x, height - bottom + 38, f"{late:,} late", 11, fill="#a33"))
        share = 1 - late / TOTAL
        points.append((x, top + plot_height * (1 - (share - 0.8) / 0.2), share))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y, _ in points)
    parts.append(f'<polyline points="{line}" fill="none" stroke="#c5552d" stroke-width="2.5"/>')
    for x, y, share in points:
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="#c5552d"/>')
    for x, y, share in (points[0], points[3], points[-1]):
        parts.append(text(x, y - 9, f"{share:.1%}", 11, fill="#c5552d", weight="bold"))
    parts.append(text(width / 2, height - 10, "W: how far the watermark stays behind the newest "
                      "departure. The storm's flights are the late rows.", 12, fill="#667"))
    return "\n".join(parts) + "\n</svg>\n"


def main():
    binary = sys.argv[1]
    rows = []
    for name, interval, hours in WAITS:
        late, mean, label = measure(binary, interval)
        rows.append((name, hours, late, mean, label))
        print(f"W = {name:7} {late:6} late, worst hour {mean:.1f} min ({label})")
    target = ROOT / "docs" / "images" / "flights.svg"
    target.parent.mkdir(exist_ok=True)
    target.write_text(draw(rows))


if __name__ == "__main__":
    main()
