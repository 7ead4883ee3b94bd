"""What every system looks like to the run: a name, its settings, and five verbs.

A peer is started in one setting, measured and stopped again, so that each has the machine to itself. It times its own
work and decides nothing about rounds, order or output.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from samples import median, percentile


class Missing(Exception):
    """The peer, or one setting of it, cannot be measured here. The text says why; it is shown in the table."""


@dataclass(frozen=True)
class Setting:
    """One row of a table."""

    key: str
    label: str
    # How it was set up, as one sentence for those who want to repeat it.
    about: str
    # What runs when a job runs: a process, or a call in a process that was there before.
    job_is: str = "process"
    # Is a job that was acknowledged still there after the power was cut?
    durable: str = "no"
    # No-op jobs a round, or samples a round.
    n: int = 0
    # Why this row has no figures on any machine.
    skipped: str | None = None


@dataclass(frozen=True)
class Sample:
    """One job's way, in milliseconds after its submit began. `done` is missing where nothing tells it."""

    running: float
    done: float | None = None


@dataclass(frozen=True)
class Latency:
    """What is told of a round, in milliseconds."""

    running_p50: float
    running_p99: float
    done_p50: float | None = None
    done_p99: float | None = None

    @classmethod
    def of(cls, samples: list[Sample]) -> "Latency":
        running = [sample.running for sample in samples]
        done = [sample.done for sample in samples if sample.done is not None]
        found = [median(running), percentile(running, 99)]
        return cls(*found, median(done), percentile(done, 99)) if done else cls(*found)


class Peer(ABC):
    name: str

    @abstractmethod
    def version(self) -> str:
        """Raises `Missing` when the peer is not here or may not be run."""

    @abstractmethod
    def start(self, setting: Setting, slots: int) -> None:
        """One node with so many slots, warm when this returns."""

    @abstractmethod
    def noop(self, setting: Setting, n: int) -> float:
        """Jobs a second, from before the first submit until the last one is known to have ended."""

    def latency(self, setting: Setting, n: int) -> Latency:
        """One job after the other on a node that waits."""
        raise Missing("not measured")

    def cold(self, setting: Setting, n: int) -> Latency:
        """One job after the other, each when no node is there."""
        raise Missing("not measured")

    @abstractmethod
    def stop(self) -> None:
        """Everything that `start` began is gone when this returns; it may be called twice."""
