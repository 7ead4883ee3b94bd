"""Neap's figures beside the targets that its design sets, each from medians of the same run."""

from dataclasses import dataclass

from samples import median


@dataclass(frozen=True)
class Target:
    measure: str
    value: float
    # None: told for comparison, and nothing was promised.
    target: str | None
    reached: bool | None

    def row(self) -> list[str]:
        words = {True: "reached", False: "not reached", None: ""}
        return [self.measure, f"{self.value:.2f}", self.target or "", words[self.reached]]


def of(noop: dict[str, list[float]], latency: dict[str, float], cold: dict[str, float]) -> list[Target]:
    """`noop` has the rates of each round by the key of the setting, the others Neap's percentiles. What was not
    measured is not judged."""
    quickest = max(
        (key for key in noop if key.startswith("hq-")), key=lambda key: median(noop[key]), default="hq-plain"
    )
    wanted = [
        ("no-op jobs, isolation off : HyperQueue's quickest setting", "neap-off", quickest, 1.5),
        ("no-op jobs, isolation off : HyperQueue, bash -c true as well", "neap-off", "hq-shell", None),
        ("no-op jobs, isolation off : HyperQueue, a submit for each job as well", "neap-off", "hq-each", None),
        ("no-op jobs, isolation off : bare /bin/true", "neap-off", "bare-true", 0.75),
        ("no-op jobs, isolation off : bare bash -c true", "neap-off", "bare-shell", None),
        ("no-op jobs, isolation full : bare /bin/true, isolated", "neap-full", "isolated-true", 0.75),
        (
            "no-op jobs, isolation full : bare bash -c true, isolated",
            "neap-full",
            "isolated-shell",
            None,
        ),
        ("no-op jobs, HyperQueue's quickest setting : bare /bin/true", quickest, "bare-true", None),
        ("no-op jobs, isolation off : Slurm, one job array", "neap-off", "slurm-array", None),
    ]
    found = []
    for measure, over, under, least in wanted:
        if noop.get(over) and noop.get(under):
            value = ratio(noop[over], noop[under])
            found.append(Target(measure, value, least and f">= {least:g}", least and value >= least))
    for measure, figures, key, most in [
        ("warm node, submit to running, p50 (ms)", latency, "running_p50", 10),
        ("warm node, submit to running, p99 (ms)", latency, "running_p99", 50),
        ("zero nodes, submit to first line, p50 (ms)", cold, "running_p50", 250),
    ]:
        if key in figures:
            found.append(Target(measure, figures[key], f"< {most}", figures[key] < most))
    return found


def ratio(over: list[float], under: list[float]) -> float:
    """Of rounds that lie side by side, so that a slow minute of the machine falls on both."""
    return median([a / b for a, b in zip(over, under)])
