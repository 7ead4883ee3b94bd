#!/usr/bin/env python3
"""Draws figures as SVG, with nothing but Python: readable on light and dark pages, small enough for git.

    bench/chart.py results                    what is in bench/results/, into docs/benchmarks/
    bench/chart.py bars   CHART.json OUT.svg  rates from zero, with the range of the rounds
    bench/chart.py dots   CHART.json OUT.svg  times on a logarithmic axis, p50 to p99
    bench/chart.py lines  CHART.json OUT.svg  growth, both axes logarithmic

CHART.json of bars and dots: {"title", "subtitle", "unit", "rows": [{"label", "note", "value", "low", "high", "kind"}]};
"kind" is "neap", "peer" or "bare". Of lines: {"title", "subtitle", "x", "y", "limit": {"label", "value"}, "series":
[{"label", "points": [[x, y], ...]}]}. Of everything but values and labels each may be left out.
"""

import argparse
import json
import sys
from html import escape
from math import ceil, floor, log10
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 860
MARGIN = 24
LABELS = 290
ROW = 30
HEAD = 76
FOOT = 44
PLOT_HEIGHT = 340
LINE_LABELS = 150

STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #1f2328; }
.title { font-size: 16px; font-weight: 600; }
.quiet, .tick { fill: #59636e; font-size: 12px; }
.value { font-variant-numeric: tabular-nums; font-weight: 600; }
.grid { stroke: #d8dee4; }
.range { stroke: #1f2328; stroke-width: 1.5; opacity: .55; }
.limit { stroke: #bc4c00; stroke-dasharray: 5 4; stroke-width: 1.5; }
.limit-text { fill: #bc4c00; font-size: 12px; }
.neap { fill: #0969da; stroke: #0969da; }
.peer { fill: #818b98; stroke: #818b98; }
.bare { fill: #818b98; fill-opacity: .18; stroke: #818b98; }
.line { fill: none; stroke-width: 2; }
.s0 { stroke: #0969da; } .s1 { stroke: #bf3989; } .s2 { stroke: #1a7f37; }
.s3 { stroke: #9a6700; } .s4 { stroke: #8250df; } .s5 { stroke: #59636e; }
.mark { fill: #ffffff; stroke-width: 2; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .quiet, .tick { fill: #9198a1; }
  .grid { stroke: #3d444d; }
  .range { stroke: #e6edf3; }
  .limit { stroke: #f0883e; } .limit-text { fill: #f0883e; }
  .neap { fill: #4493f8; stroke: #4493f8; }
  .peer { fill: #757d87; stroke: #9198a1; } .bare { fill: #9198a1; stroke: #9198a1; }
  .s0 { stroke: #4493f8; } .s1 { stroke: #f778ba; } .s2 { stroke: #3fb950; }
  .s3 { stroke: #d29922; } .s4 { stroke: #a371f7; } .s5 { stroke: #9198a1; }
  .mark { fill: #0d1117; }
}
"""


class Svg:
    def __init__(self, title: str, subtitle: str, height: float):
        self.height = height
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
            f"<title>{escape(title)}</title><style>{STYLE}</style>",
        ]
        self.text(MARGIN, 30, title, "title")
        self.text(MARGIN, 50, subtitle, "quiet")

    def text(self, x: float, y: float, words: str, style: str = "", anchor: str = "start") -> None:
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(words)}</text>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, style: str) -> None:
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"/>')

    def bar(self, x: float, y: float, width: float, height: float, style: str) -> None:
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="3" class="{style}"/>'
        )

    def circle(self, x: float, y: float, radius: float, style: str) -> None:
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{style}"/>')

    def path(self, points: list[tuple[float, float]], style: str) -> None:
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{way}" class="{style}"/>')

    def __str__(self) -> str:
        return "\n".join([*self.parts, "</svg>", ""])


def bars(chart: dict) -> str:
    rows = chart["rows"]
    most = max(row.get("high", row["value"]) for row in rows)
    step = nice_step(most)
    end = ceil(most / step) * step
    left, right = MARGIN + LABELS, WIDTH - MARGIN - 64
    svg = frame(chart, len(rows))

    def x(value: float) -> float:
        return left + (right - left) * value / end

    for tick in range(round(end / step) + 1):
        axis_tick(svg, x(tick * step), short(tick * step), len(rows))
    for at, row in enumerate(rows):
        middle = HEAD + ROW * at + ROW / 2
        row_label(svg, row, middle)
        svg.bar(left, middle - 9, x(row["value"]) - left, 18, row.get("kind", "peer"))
        if row.get("high", row["value"]) > row.get("low", row["value"]):
            svg.line(x(row["low"]), middle, x(row["high"]), middle, "range")
        svg.text(x(row.get("high", row["value"])) + 8, middle + 4, short(row["value"]), "value")
    return str(svg)


def dots(chart: dict) -> str:
    rows = chart["rows"]
    first, last = decades([row["value"] for row in rows] + [row.get("high", row["value"]) for row in rows])
    left, right = MARGIN + LABELS, WIDTH - MARGIN - 64
    svg = frame(chart, len(rows))

    def x(value: float) -> float:
        return left + (right - left) * (log10(value) - first) / (last - first)

    for power in range(first, last + 1):
        axis_tick(svg, x(10**power), short(10**power), len(rows))
    limit = chart.get("limit")
    if limit:
        bottom = HEAD + ROW * len(rows)
        svg.line(x(limit["value"]), HEAD - 4, x(limit["value"]), bottom, "limit")
        svg.text(x(limit["value"]), HEAD - 8, limit["label"], "limit-text", "middle")
    for at, row in enumerate(rows):
        middle = HEAD + ROW * at + ROW / 2
        kind, high = row.get("kind", "peer"), row.get("high", row["value"])
        row_label(svg, row, middle)
        svg.line(x(row["value"]), middle, x(high), middle, kind)
        svg.circle(x(row["value"]), middle, 6, kind)
        svg.line(x(high), middle - 5, x(high), middle + 5, kind)
        svg.text(x(high) + 10, middle + 4, f"{short(row['value'])} {chart.get('unit', '')}".strip(), "value")
    return str(svg)


def lines(chart: dict) -> str:
    series = chart["series"]
    points = [point for each in series for point in each["points"]]
    limit = chart.get("limit")
    x_first, x_last = decades([x for x, _ in points])
    y_first, y_last = decades([y for _, y in points] + ([limit["value"]] if limit else []))
    left, right = MARGIN + 56, WIDTH - MARGIN - LINE_LABELS
    top, bottom = HEAD + 16, HEAD + 16 + PLOT_HEIGHT
    svg = Svg(chart["title"], chart.get("subtitle", ""), bottom + FOOT + 16)

    def x(value: float) -> float:
        return left + (right - left) * (log10(value) - x_first) / (x_last - x_first)

    def y(value: float) -> float:
        return bottom - (bottom - top) * (log10(value) - y_first) / (y_last - y_first)

    for power in range(x_first, x_last + 1):
        svg.line(x(10**power), top, x(10**power), bottom, "grid")
        svg.text(x(10**power), bottom + 18, short(10**power), "tick", "middle")
    for power in range(y_first, y_last + 1):
        svg.line(left, y(10**power), right, y(10**power), "grid")
        svg.text(left - 8, y(10**power) + 4, short(10**power), "tick", "end")
    svg.text((left + right) / 2, bottom + 42, chart.get("x", ""), "quiet", "middle")
    svg.text(left - 8, top - 10, chart.get("y", ""), "quiet", "end")
    if limit:
        svg.line(left, y(limit["value"]), right, y(limit["value"]), "limit")
        svg.text(right - 4, y(limit["value"]) - 6, limit["label"], "limit-text", "end")
    for at, each in enumerate(series):
        way = [(x(a), y(b)) for a, b in each["points"]]
        svg.path(way, f"line s{at % 6}")
        for place in way:
            svg.circle(*place, 3.5, f"mark s{at % 6}")
    ends = [(y(each["points"][-1][1]), number, each["label"]) for number, each in enumerate(series)]
    for at, number, words in apart_by(18, ends):
        svg.line(right + 12, at, right + 28, at, f"line s{number % 6}")
        svg.text(right + 34, at + 4, words)
    return str(svg)


def frame(chart: dict, rows: int) -> Svg:
    svg = Svg(chart["title"], chart.get("subtitle", ""), HEAD + ROW * rows + FOOT)
    svg.text(WIDTH - MARGIN - 64, HEAD + ROW * rows + 34, chart.get("unit", ""), "quiet", "end")
    return svg


def axis_tick(svg: Svg, x: float, words: str, rows: int) -> None:
    bottom = HEAD + ROW * rows
    svg.line(x, HEAD, x, bottom, "grid")
    svg.text(x, bottom + 16, words, "tick", "middle")


def row_label(svg: Svg, row: dict, middle: float) -> None:
    label = escape(row["label"])
    note = f'<tspan class="quiet" dx="6">{escape(row["note"])}</tspan>' if row.get("note") else ""
    svg.parts.append(f'<text x="{MARGIN + LABELS - 12}" y="{middle + 4:.1f}" text-anchor="end">{label}{note}</text>')


def nice_step(most: float) -> float:
    """Four to eight steps to the end, each a round number."""
    rough = most / 6
    power = 10 ** floor(log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)


def decades(values: list[float]) -> tuple[int, int]:
    first, last = floor(log10(min(values))), ceil(log10(max(values)))
    return first, max(last, first + 1)


def short(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{value / size:g}{letter}"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def apart_by(least: float, labels: list[tuple[float, int, str]]) -> list[tuple[float, int, str]]:
    """Labels at the ends of lines, pushed down until none lies on another."""
    placed, lowest = [], float("-inf")
    for at, number, words in sorted(labels):
        lowest = max(at, lowest + least)
        placed.append((lowest, number, words))
    return placed


def results(source: Path, target: Path) -> list[Path]:
    """Every chart that the results allow."""
    target.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawn in charts(source):
        path = target / f"{name}.svg"
        path.write_text(drawn)
        written.append(path)
    return written


def charts(source: Path):
    if (source / "peers.json").exists():
        yield from peers(json.loads((source / "peers.json").read_text()))
    if (source / "planner.json").exists():
        yield from planner(json.loads((source / "planner.json").read_text()))


def peers(found: dict):
    setup = f"one node, {found['slots']} slots, {found['machine'].get('cpu', 'unknown processor')}"
    kinds = {"Neap": "neap", "bare spawn": "bare"}

    def row(each: dict, value: float, low: float, high: float) -> dict:
        kind = kinds.get(each["system"], "peer")
        return {
            "label": each["system"],
            "note": each["setting"],
            "value": value,
            "low": low,
            "high": high,
            "kind": kind,
        }

    rated = [each for each in found.get("noop", []) if "jobs_per_second" in each]
    # A call in a worker that waits is another thing than a process for each job.
    rates = [(each, each["jobs_per_second"]) for each in rated if each["job_is"] != "call"]
    rates.sort(key=lambda pair: -pair[1]["median"])
    if rates:
        yield (
            "noop",
            bars(
                {
                    "title": "No-op jobs a second, a process for each",
                    "subtitle": f"median and range of {found['rounds']} rounds; {setup}{durable(rated)}",
                    "unit": "jobs/s",
                    "rows": [row(each, rate["median"], rate["min"], rate["max"]) for each, rate in rates],
                }
            ),
        )
    for name, title, limit in [
        ("latency", "Submit to running, on a warm node", {"value": 10, "label": "target p50: 10 ms"}),
        ("cold", "Submit to running, from zero nodes", {"value": 250, "label": "target p50: 250 ms"}),
    ]:
        timed = sorted(
            (each for each in found.get(name, []) if "running_p50" in each), key=lambda each: each["running_p50"]
        )
        if timed:
            yield (
                name,
                dots(
                    {
                        "title": title,
                        "subtitle": f"p50 to p99, one job after the other; {setup}",
                        "unit": "ms",
                        "limit": limit,
                        "rows": [
                            row(each, each["running_p50"], each["running_p50"], each["running_p99"]) for each in timed
                        ],
                    }
                ),
            )


def durable(rows: list[dict]) -> str:
    systems = sorted({row["system"] for row in rows if row["durable"] == "yes"})
    return f"; durable when acknowledged: {', '.join(systems)}" if systems else ""


def planner(found: dict):
    """How planning grows: a line for each number of nodes."""
    setup = f"neap bench planner, {found['machine'].get('cpu', 'unknown processor')}"
    for name, title, key, per_ms, limit in [
        ("planner-full", "A full plan, by queued jobs", "full_plan_ms", 1, {"value": 1000, "label": "target: 1 s"}),
        (
            "planner-change",
            "Planning after one change, by queued jobs",
            "replan_us_p50",
            1000,
            {"value": 10, "label": "target: 10 ms"},
        ),
    ]:
        grown: dict[int, list] = {}
        for row in sorted(found["rows"], key=lambda row: (row["nodes"], row["jobs"])):
            grown.setdefault(round(row["nodes"]), []).append([row["jobs"], row[key] / per_ms])
        series = [{"label": f"{nodes:,} nodes", "points": points} for nodes, points in grown.items()]
        yield (
            name,
            lines({"title": title, "subtitle": setup, "x": "queued jobs", "y": "ms", "limit": limit, "series": series}),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["results", "bars", "dots", "lines"])
    parser.add_argument("chart", nargs="?", type=Path, help="CHART.json")
    parser.add_argument("out", nargs="?", type=Path, help="OUT.svg")
    parser.add_argument("--from", dest="source", type=Path, default=ROOT / "bench/results")
    parser.add_argument("--to", dest="target", type=Path, default=ROOT / "docs/benchmarks")
    arguments = parser.parse_args()
    if arguments.kind == "results":
        written = results(arguments.source, arguments.target)
        print("\n".join(map(str, written)) or f"nothing to draw in {arguments.source}")
        return
    if not (arguments.chart and arguments.out):
        parser.error(f"{arguments.kind} needs CHART.json and OUT.svg")
    draw = {"bars": bars, "dots": dots, "lines": lines}[arguments.kind]
    arguments.out.write_text(draw(json.loads(arguments.chart.read_text())))


if __name__ == "__main__":
    sys.exit(main())
