"""Figures out of samples, as `neap bench` makes them: percentiles are samples that were seen (nearest rank)."""

from math import ceil


def percentile(samples: list[float], percent: int) -> float:
    ordered = sorted(samples)
    return ordered[max(1, ceil(len(ordered) * percent / 100)) - 1]


def median(samples: list[float]) -> float:
    return percentile(samples, 50)


def spread(samples: list[float]) -> float:
    """(p90 - p10) / p50."""
    middle = median(samples)
    return (percentile(samples, 90) - percentile(samples, 10)) / middle if middle else 0.0
