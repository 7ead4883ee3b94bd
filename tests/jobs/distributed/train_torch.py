"""DistributedDataParallel over gloo; every rank prints the weights it ends with."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from data import RATE, STEPS, rows

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
assert (rank, world) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
x, y = torch.tensor(list(rows(rank, world)), dtype=torch.float64).T
model = torch.nn.Linear(1, 1).double()
torch.nn.init.zeros_(model.weight)
torch.nn.init.zeros_(model.bias)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
for _ in range(STEPS):
    optimizer.zero_grad()
    ((model(x[:, None])[:, 0] - y) ** 2).mean().backward()
    optimizer.step()
weight, bias = (p.item() for p in model.parameters())
print(f"rank {rank} of {world}: weight {weight:.9f} bias {bias:.9f}", flush=True)
