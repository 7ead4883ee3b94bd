"""Neap beside its peers, in one run: rounds of all systems in turn, one table per benchmark, one JSON file.

Each system is started for its round, measured and stopped, so that it has the machine to itself. The rounds are
interleaved and each begins with another system: what else the machine does falls on all alike. A peer that is not here
keeps its row, with the reason. Installing is run.sh's work.
"""

import argparse
import json
import os
import platform
import shlex
import signal
import sys
import tempfile
import textwrap
import time
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from pathlib import Path

import hyperqueue_
import neap
import ray_
import slurm
import table
import targets
from apart import Apart
from peer import Latency, Missing, Peer, Setting
from samples import median, spread

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ["noop", "latency", "cold"]
TITLES = {
    "noop": "No-op jobs, from the first submit to the last end (jobs/s)",
    "latency": "One job after the other on a warm node (ms)",
    "cold": "One job after the other, each from zero nodes (ms)",
}
# A quick run only shows that everything works.
QUICK_DIVISOR = 10
WIDTH = 118
WATCH_S = 0.5
BUSY_SHARE_MAX = 0.1


@dataclass
class Row:
    """One system in one setting, and what its rounds gave."""

    system: str
    peer: Peer | None
    setting: Setting
    # Why there are no figures, or no more of them.
    skipped: str | None = None
    rates: list[float] = field(default_factory=list)
    latencies: list[Latency] = field(default_factory=list)

    @property
    def key(self) -> str:
        return self.setting.key

    def of_rounds(self, name: str) -> float | None:
        """The median over the rounds of what each round told."""
        told = [value for value in (getattr(each, name) for each in self.latencies) if value is not None]
        return median(told) if told else None


def main() -> None:
    arguments = parse()
    # Interrupted or asked to end: what runs is taken down on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="neap-peers-") as folder:
        run = Run(arguments, Path(folder))
        run.look_for_versions()
        for benchmark in arguments.benchmarks:
            run.measure(benchmark)
        run.tell()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="how many rounds of everything (default: %(default)s)")
    parser.add_argument(
        "--slots", type=int, default=os.cpu_count(), help="jobs side by side (default: one for each core)"
    )
    parser.add_argument("--benchmarks", default=",".join(BENCHMARKS), help="some of %(default)s")
    parser.add_argument("--only", default="", help="only settings whose key begins so, e.g. neap,hq")
    parser.add_argument(
        "--quick", action="store_true", help=f"one round, a {QUICK_DIVISOR}th of the jobs: does everything work?"
    )
    parser.add_argument("--save", type=Path, default=ROOT / "bench/results/peers.json", help="the figures as JSON")
    arguments = parser.parse_args()
    arguments.benchmarks = [name for name in arguments.benchmarks.split(",") if name]
    unknown = set(arguments.benchmarks) - set(BENCHMARKS)
    if unknown:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if arguments.quick:
        arguments.rounds = 1
    return arguments


class Run:
    def __init__(self, arguments: argparse.Namespace, folder: Path):
        self.arguments = arguments
        release = ROOT / "target/release"
        scratch = os.environ.get("BENCH_SCRATCH")
        if scratch:
            # The peers keep their state where temporary files go.
            tempfile.tempdir = scratch
        self.neap = neap.Neap(Path(os.environ.get("NEAP_BIN", release / "neap")), Path(scratch) if scratch else None)
        isolated = neap.Isolated(Path(os.environ.get("SPAWN_RATE_BIN", release / "examples/spawn_rate")))
        python = ROOT / ".venv-bench/bin/python"
        hyperqueue = Apart(python, "hyperqueue_", hyperqueue_.NAME, folder / "hyperqueue.log")
        ray = Apart(python, "ray_", ray_.NAME, folder / "ray.log")
        slurm_ = slurm.Slurm()

        def rows(peer: Peer, settings: list[Setting]) -> list[Row]:
            return [
                Row(peer.name, peer, setting, setting.skipped and f"skipped: {setting.skipped}") for setting in settings
            ]

        def chosen(rows: list[Row]) -> list[Row]:
            only = tuple(arguments.only.split(","))
            return [row for row in rows if row.key.startswith(only)]

        # Bare spawns are measured by Neap's own rounds: see `noop`.
        self.bare = chosen([Row(neap.BARE_NAME, None, setting) for setting in neap.BARE])
        self.rows = {
            "noop": chosen(
                rows(self.neap, neap.NOOP)
                + rows(hyperqueue, hyperqueue_.NOOP)
                + rows(slurm_, slurm.NOOP)
                + rows(ray, ray_.NOOP)
                + rows(isolated, neap.ISOLATED)
            ),
            "latency": chosen(
                rows(self.neap, neap.LATENCY)
                + rows(hyperqueue, hyperqueue_.LATENCY)
                + rows(slurm_, slurm.LATENCY)
                + rows(ray, ray_.LATENCY)
            ),
            "cold": chosen(rows(self.neap, neap.COLD) + rows(slurm_, slurm.COLD) + rows(hyperqueue, hyperqueue_.COLD)),
        }
        self.rows = {name: self.rows[name] for name in arguments.benchmarks}
        self.versions: dict[str, str] = {}
        # How much of all cores somebody else used, before each measurement.
        self.busy_before: list[float] = []

    def look_for_versions(self) -> None:
        reasons: dict[str, str] = {}
        for peer in {row.system: row.peer for rows in self.rows.values() for row in rows}.values():
            try:
                self.versions[peer.name] = peer.version()
            except Missing as missing:
                reasons[peer.name] = f"skipped: {missing}"
                say(f"{peer.name} is skipped: {missing}")
        for row in (row for rows in self.rows.values() for row in rows):
            row.skipped = row.skipped or reasons.get(row.system)

    def measure(self, benchmark: str) -> None:
        rows = self.rows[benchmark]
        for number in range(self.arguments.rounds):
            turn = number % max(1, len(rows))
            for row in rows[turn:] + rows[:turn]:
                if not row.skipped:
                    say(
                        f"{benchmark}, round {number + 1} of {self.arguments.rounds}: {row.system}, {row.setting.label}"
                    )
                    self.measure_row(benchmark, row)

    def measure_row(self, benchmark: str, row: Row) -> None:
        self.busy_before.append(busy_share())
        if self.busy_before[-1] > BUSY_SHARE_MAX:
            say(f"the machine is {table.percent(self.busy_before[-1])} busy with other things; figures will be poor")
        try:
            row.peer.start(row.setting, self.arguments.slots)
            if benchmark == "noop":
                row.rates.append(row.peer.noop(row.setting, self.size(row.setting)))
                if row.key == "neap-off":
                    for bare in self.bare:
                        bare.rates.append(self.neap.bare[bare.key])
            else:
                measured = row.peer.latency if benchmark == "latency" else row.peer.cold
                row.latencies.append(measured(row.setting, self.size(row.setting)))
        except (Missing, RuntimeError, OSError) as error:
            row.skipped = f"failed: {error}"
            say(f"{row.system}, {row.setting.label}: {error}")
        finally:
            row.peer.stop()

    def size(self, setting: Setting) -> int:
        return max(2, setting.n // QUICK_DIVISOR) if self.arguments.quick else setting.n

    def shown(self, benchmark: str) -> list[Row]:
        """With the rows that were measured on the way."""
        rows = self.rows[benchmark]
        return rows + [bare for bare in self.bare if bare.rates] if benchmark == "noop" else rows

    def tell(self) -> None:
        found = self.figures()
        rounds, slots = count(self.arguments.rounds, "round"), count(self.arguments.slots, "slot")
        print(f"\nNeap beside its peers: {rounds}, one node with {slots}")
        print("machine:  " + machine_sentence(found["machine"]))
        print(f"          {table.percent(found['busy_before'])} busy with other things before a measurement, at most")
        print("versions: " + ", ".join(f"{name} {version}" for name, version in self.versions.items() if version))
        print("command:  " + found["command"])
        for benchmark in self.arguments.benchmarks:
            rows = self.shown(benchmark)
            print(f"\n{TITLES[benchmark]}\n")
            print(self.noop_table(rows) if benchmark == "noop" else self.latency_table(rows))
            print()
            for row in rows:
                if row.rates or row.latencies:
                    about = f"{row.system}, {row.setting.label}: {row.setting.about}."
                    print(textwrap.fill(about, WIDTH, initial_indent="  ", subsequent_indent="    "))
        judged = self.targets()
        if judged:
            print("\nTargets (ratios of the rounds that lie side by side)\n")
            print(table.render(["Measure", "Value", "Target", ""], [each.row() for each in judged], {"Value"}))
        save = self.arguments.save
        save.parent.mkdir(parents=True, exist_ok=True)
        save.write_text(json.dumps(found, indent=2) + "\n")
        print(f"\nfigures as JSON: {save}")

    def noop_table(self, rows: list[Row]) -> str:
        lines = []
        for row in rows:
            if row.rates:
                setting, rates = row.setting, row.rates
                size = f"{self.size(setting):,} x {len(rates)}" if setting.n else f"{len(rates)}"
                durable = setting.durable if row.system != neap.BARE_NAME else "-"
                lines.append(
                    [
                        row.system,
                        setting.label,
                        setting.job_is,
                        durable,
                        size,
                        *(table.rate(value) for value in (median(rates), min(rates), max(rates))),
                        table.percent(spread(rates)),
                    ]
                )
            else:
                lines.append([row.system, row.setting.label, row.skipped or "not measured"])
        columns = ["System", "Setting", "A job is a", "Durable", "n", "Median", "Min", "Max", "Spread"]
        return table.render(columns, lines, {"n", "Median", "Min", "Max", "Spread"})

    def latency_table(self, rows: list[Row]) -> str:
        lines = []
        for row in rows:
            if row.latencies:
                middles = [each.running_p50 for each in row.latencies]
                lines.append(
                    [
                        row.system,
                        row.setting.label,
                        row.setting.durable,
                        f"{self.size(row.setting)} x {len(middles)}",
                        *(
                            table.ms(row.of_rounds(name))
                            for name in ("running_p50", "running_p99", "done_p50", "done_p99")
                        ),
                        table.percent(spread(middles)),
                    ]
                )
            else:
                lines.append([row.system, row.setting.label, row.skipped or "not measured"])
        columns = ["System", "Setting", "Durable", "n", "Running p50", "p99", "Done p50", "p99", "Spread"]
        return table.render(columns, lines, {"n", "Running p50", "p99", "Done p50", "Spread"})

    def targets(self) -> list[targets.Target]:
        rates = {row.key: row.rates for row in self.shown("noop") if row.rates} if "noop" in self.rows else {}

        def of_neap(benchmark: str) -> dict[str, float]:
            rows = [row for row in self.rows.get(benchmark, []) if row.system == neap.NAME and row.latencies]
            return {name: row.of_rounds(name) for row in rows for name in ("running_p50", "running_p99")}

        return targets.of(rates, of_neap("latency"), of_neap("cold"))

    def figures(self) -> dict:
        found = {
            "benchmark": "peers",
            "measured_at": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "command": shlex.join(["bench/peers/run.sh", *sys.argv[1:]]),
            "machine": self.neap.machine or {"cores": os.cpu_count(), "kernel": platform.release()},
            "versions": self.versions,
            "slots": self.arguments.slots,
            "rounds": self.arguments.rounds,
            "busy_before": max(self.busy_before, default=0.0),
        }
        for benchmark in self.arguments.benchmarks:
            found[benchmark] = [self.row_figures(row) for row in self.shown(benchmark)]
        found["targets"] = [asdict(each) for each in self.targets()]
        return found

    def row_figures(self, row: Row) -> dict:
        setting = row.setting
        told = {"key": row.key, "system": row.system, "setting": setting.label, "about": setting.about}
        told |= {"job_is": setting.job_is, "durable": setting.durable, "n": self.size(setting)}
        if row.rates:
            told["jobs_per_second"] = {
                "median": median(row.rates),
                "min": min(row.rates),
                "max": max(row.rates),
                "spread": spread(row.rates),
                "samples": row.rates,
            }
        elif row.latencies:
            names = ("running_p50", "running_p99", "done_p50", "done_p99")
            told |= {name: row.of_rounds(name) for name in names}
            told["rounds"] = [asdict(each) for each in row.latencies]
        else:
            told["skipped"] = row.skipped
        return told


def busy_share() -> float:
    """Of all cores, while nothing of ours runs."""

    def ticks() -> tuple[int, int]:
        times = [int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]]
        return sum(times[:8]), times[3] + times[4]

    all_before, idle_before = ticks()
    time.sleep(WATCH_S)
    all_after, idle_after = ticks()
    return 1 - (idle_after - idle_before) / max(1, all_after - all_before)


def machine_sentence(machine: dict) -> str:
    if "cpu" not in machine:
        return f"{machine['cores']} cores, Linux {machine['kernel']}"
    return (
        f"{machine['cores']} cores ({machine['cpu']}), {machine['memory_mb']} MB, Linux {machine['kernel']}, "
        f"{machine['file_system']} ({machine['sync_ms']:.2f} ms to make 4 KiB durable)"
    )


def count(n: int, thing: str) -> str:
    return f"{n} {thing}" if n == 1 else f"{n} {thing}s"


def say(text: str) -> None:
    print(f"peers: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        say("interrupted; everything that was started is down again")
        sys.exit(130)
