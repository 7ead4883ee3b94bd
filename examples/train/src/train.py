"""Trains a small neural network on two interleaved half circles, in plain Python.

Prints the loss of each epoch, writes the model to ./outputs and a report to the named output.
"""

import argparse
import json
import math
import os
import random
import time
from pathlib import Path


def moons(count, noise, dice):
    """Points of two half circles that reach into each other, and which of the two each belongs to."""
    points = []
    for i in range(count):
        angle = math.pi * dice.random()
        if i % 2:
            x, y = 1 - math.cos(angle), 0.5 - math.sin(angle)
        else:
            x, y = math.cos(angle), math.sin(angle)
        points.append((x + dice.gauss(0, noise), y + dice.gauss(0, noise), i % 2))
    return points


class Network:
    """Two inputs, one hidden layer of tanh units, one logistic output; trained by stochastic gradient descent."""

    def __init__(self, hidden, dice):
        self.hidden = [[dice.gauss(0, 1), dice.gauss(0, 1), 0.0] for _ in range(hidden)]
        self.out = [dice.gauss(0, 1 / math.sqrt(hidden)) for _ in range(hidden)]
        self.bias = 0.0

    def forward(self, x, y):
        lit = [math.tanh(a * x + b * y + c) for a, b, c in self.hidden]
        score = self.bias + sum(w * h for w, h in zip(self.out, lit))
        return lit, 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))

    def learn(self, x, y, label, rate):
        lit, guess = self.forward(x, y)
        slope = guess - label
        for unit, (weight, h) in enumerate(zip(list(self.out), lit)):
            back = slope * weight * (1 - h * h)
            a, b, c = self.hidden[unit]
            self.hidden[unit] = [a - rate * back * x, b - rate * back * y, c - rate * back]
            self.out[unit] = weight - rate * slope * h
        self.bias -= rate * slope
        return -math.log(max(1e-9, guess if label else 1 - guess))

    def accuracy(self, points):
        return sum((self.forward(x, y)[1] > 0.5) == bool(label) for x, y, label in points) / len(points)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=12)
    parser.add_argument("--rate", type=float, default=0.05)
    parser.add_argument("--report", type=Path, required=True)
    given = parser.parse_args()

    dice = random.Random(7)
    train, test = moons(12000, 0.2, dice), moons(3000, 0.2, dice)
    network = Network(given.hidden, dice)
    print(f"training on {len(train)} points, testing on {len(test)}, {given.hidden} hidden units, process {os.getpid()}")
    began = time.time()
    history = []
    for epoch in range(1, given.epochs + 1):
        dice.shuffle(train)
        loss = sum(network.learn(x, y, label, given.rate) for x, y, label in train) / len(train)
        history.append({"epoch": epoch, "loss": round(loss, 4), "accuracy": round(network.accuracy(test), 4)})
        print(f"epoch {epoch:2d}/{given.epochs}  loss {loss:.4f}  accuracy {history[-1]['accuracy']:.4f}")

    best = history[-1]["accuracy"]
    Path("outputs").mkdir(exist_ok=True)
    Path("outputs/model.json").write_text(json.dumps({"hidden": network.hidden, "out": network.out, "bias": network.bias, "history": history}))
    given.report.mkdir(parents=True, exist_ok=True)
    lines = [f"# Two moons: accuracy {best:.4f} after {given.epochs} epochs", "", "| epoch | loss | accuracy |", "|---|---|---|"]
    lines += [f"| {h['epoch']} | {h['loss']:.4f} | {h['accuracy']:.4f} |" for h in history]
    (given.report / "report.md").write_text("\n".join(lines) + "\n")
    print(f"metric accuracy={best:.4f} seconds={time.time() - began:.1f}")


if __name__ == "__main__":
    main()
