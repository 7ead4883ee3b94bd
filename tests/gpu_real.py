#!/usr/bin/env python3
"""Shows on a machine with a real NVIDIA GPU that GPUs are found, given to one attempt at a time, closed to others, and measured.

Needs the driver (libcuda.so.1, libnvidia-ml.so.1), python3 and a built `neap`, and nothing else:

    NEAP_BIN=target/release/neap python3 tests/gpu_real.py [--seconds 35]

It starts a server of its own in a fresh folder and stops it again. Exit status 0: everything was so.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NEAP = Path(os.environ.get("NEAP_BIN", ROOT / "target" / "release" / "neap")).resolve()
FINAL = {"Completed", "Failed", "Canceled"}
ONE = "STANDARD_NC24ADS_A100_V4"

# Work for a GPU through the driver alone: memory is taken, and filled again and again. Prints what it sees, then `ready`.
LOAD = r"""
import ctypes, os, sys, time
print("CUDA_VISIBLE_DEVICES", repr(os.environ.get("CUDA_VISIBLE_DEVICES")), flush=True)
for name in sorted(n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()):
    try:
        os.close(os.open("/dev/" + name, os.O_RDWR))
        print("opens", name, flush=True)
    except OSError as error:
        print("closed", name, error.strerror, flush=True)
how, seconds, megabytes = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code:
        print(name, "failed with", code, flush=True)
        sys.exit(3)
call("cuInit", 0)
count = ctypes.c_int()
call("cuDeviceGetCount", ctypes.byref(count))
print("devices", count.value, flush=True)
if how == "look":
    sys.exit(0)
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
call("cuCtxSetCurrent", context)
size = megabytes << 20
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
call("cuMemsetD32_v2", memory, ctypes.c_uint(1), ctypes.c_size_t(size // 4))
call("cuCtxSynchronize")
print("ready", flush=True)
until = time.monotonic() + seconds
while time.monotonic() < until:
    if how == "busy":
        for value in range(64):
            call("cuMemsetD32_v2", memory, ctypes.c_uint(value), ctypes.c_size_t(size // 4))
        call("cuCtxSynchronize")
    else:
        time.sleep(0.2)
print("done", flush=True)
"""

failures = []


def check(what, so, detail=""):
    print(("ok      " if so else "NOT SO  ") + what + (f": {detail}" if detail != "" else ""), flush=True)
    if not so:
        failures.append(what)
    return so


class Server:
    def __init__(self):
        self.home = Path(tempfile.mkdtemp(prefix="neap-gpu-"))
        self.work = Path(tempfile.mkdtemp(prefix="neap-gpu-work-"))
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("NEAP_", "AZURE", "MLFLOW_", "IDENTITY_", "MSI_"))}
        self.environment = {**kept, "NEAP_HOME": str(self.home), "NO_COLOR": "1"}
        (self.work / "src").mkdir()
        (self.work / "src" / "load.py").write_text(LOAD)

    def neap(self, *args, check_it=True, timeout=120):
        done = subprocess.run(
            [str(NEAP), *map(str, args)], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout
        )
        if check_it and done.returncode:
            raise SystemExit(f"neap {' '.join(map(str, args))} ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *args):
        return json.loads(self.neap(*args, "-o", "json").stdout)

    def submit(self, name, compute, arguments, neap=None):
        file = self.work / f"{name}.yml"
        body = {
            "command": f"python3 load.py {arguments}",
            "code": "src",
            "environment": {"image": "library/python:latest"},
            "compute": f"azureml:{compute}",
            "resources": {"instance_count": 1, "properties": {"neap": neap} if neap else {}},
        }
        file.write_text(json.dumps(body))  # JSON is YAML
        return self.neap("job", "create", "-f", file, "-n", name, check_it=False)

    def job(self, name):
        return self.json("job", "show", "-n", name)

    def wait(self, name, wanted, seconds=180):
        deadline = time.monotonic() + seconds
        while True:
            job = self.job(name)
            if job["status"] in wanted:
                return job
            if job["status"] in FINAL or time.monotonic() > deadline:
                print(self.log(name))
                raise SystemExit(f"{name} is {job['status']}, not {wanted}: {json.dumps(job, indent=1)[:3000]}")
            time.sleep(0.2)

    def log(self, name):
        return self.neap("job", "stream", "-n", name, check_it=False).stdout

    def gpus(self, compute):
        return [gpu for node in self.json("compute", "list-nodes", "-n", compute) for gpu in node.get("gpus", [])]

    def stop(self):
        self.neap("down", "--grace", "1", check_it=False)
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.rmtree(self.work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=35, help="how long the two measured jobs run; the hint needs 30")
    seconds = parser.parse_args().seconds
    server = Server()
    try:
        doctor = server.json("doctor")
        print(server.neap("doctor").stdout)
        found = doctor["gpus"]
        if not check("the doctor finds GPUs", len(found) > 0, [f"{g['name']} {g['uuid']}" for g in found]):
            return
        check("each has a name, a UUID, memory and a device file", all(g["uuid"].startswith("GPU-") and g["name"] and g["memory_mb"] > 0 and os.path.exists(g["device"]) for g in found))
        check("the driver's version is known", bool(doctor["gpu_driver"]), doctor["gpu_driver"])

        server.neap("up", "--detach", "--listen", "127.0.0.1:0", timeout=120)
        made = server.neap("compute", "create", "-n", "gpus", "--type", "AmlCompute", "--size", ONE, "--max-instances", "2", "--idle-time-before-scale-down", "120")
        check("no warning about GPUs that are there", "GPU" not in made.stderr, made.stderr.strip())

        # A busy job, and one behind it that leaves its GPU idle.
        for name, how in (("busy", "busy"), ("lazy", "lazy")):
            sent = server.submit(name, "gpus", f"{how} {seconds} 2048")
            check(f"the {name} job is taken", sent.returncode == 0, sent.stderr.strip()[-300:])
        running = server.wait("busy", {"Running"})
        facts = running["properties"]
        check("the job says which GPU it has", facts.get("neap.gpus", "").startswith("GPU-"), facts.get("neap.gpus"))
        print("        separation:", facts.get("neap.gpu.separation"), "| isolation:", facts.get("neap.isolation"))
        live = {}
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not live.get("utilization_percent"):
            live = next((gpu for gpu in server.gpus("gpus") if gpu["job"] == "busy"), {})
            time.sleep(0.5)
        check("list-nodes shows it at work", (live.get("utilization_percent") or 0) > 0, live)
        facts = server.job("busy")["properties"]
        check("job show has live figures", "neap.gpu.utilization_now" in facts, {k: v for k, v in facts.items() if k.startswith("neap.gpu")})
        if len(found) == 1:
            lazy = server.job("lazy")
            check("with one GPU the next job waits, and says for what", lazy["status"] == "Queued", lazy["properties"].get("neap.queueReason"))
        done = server.wait("busy", {"Completed"}, seconds + 60)
        log = server.log("busy")
        own = [line.split()[1] for line in log.splitlines() if line.startswith("opens ")]
        check("it sees one device", "devices 1" in log and len(own) >= 1, log.replace("\n", " | ")[:400])
        facts = {k: v for k, v in done["properties"].items() if k.startswith("neap.gpu")}
        check("its use is kept", float(facts.get("neap.gpu.utilization", -1)) > 50, facts)
        check("and its memory", int(facts.get("neap.gpu.memory_mb", 0)) >= 2048, facts.get("neap.gpu.memory_mb"))
        check("a busy job gets no hint", "neap.gpu.hint" not in facts)

        done = server.wait("lazy", {"Completed"}, seconds + 120)
        facts = {k: v for k, v in done["properties"].items() if k.startswith("neap.gpu")}
        check("a lazy job's use is low", float(facts.get("neap.gpu.utilization", 100)) < 50, facts.get("neap.gpu.utilization"))
        if seconds >= 32:
            check("and it is told to look at data loading", "data loading" in facts.get("neap.gpu.hint", ""), facts.get("neap.gpu.hint"))

        # A job that asks for none gets none.
        server.submit("none", "gpus", "look 0 0", {"cpus": 0.5, "gpus": 0})
        ended = server.wait("none", FINAL)
        log = server.log("none")
        apart = "mount-namespace" in ended["properties"].get("neap.isolation", "")
        check("a job without GPUs finds none", ended["status"] == "Failed" or "devices 0" in log, log.replace("\n", " | ")[:400])
        if apart:
            check("and cannot open their device files", "opens nvidia" not in log and "closed nvidia" in log)
        else:
            print("        no namespaces here: device files are not closed, only the variables say which GPU is whose")

        # More than there are.
        server.neap("compute", "create", "-n", "many", "--type", "AmlCompute", "--size", "STANDARD_ND96ISR_H100_V5", "--max-instances", "1")
        if len(found) < 8:
            refused = server.submit("many", "many", "look 0 0")
            check("more GPUs than there are are refused by name", "GpuNotAvailable" in refused.stderr and "missing" in refused.stderr, refused.stderr.strip()[:300])
        verified = server.neap("down", "--grace", "1"), server.neap("verify", check_it=False)
        check("the log verifies", verified[1].returncode == 0, verified[1].stdout.strip()[-200:])
    finally:
        server.stop()
        print("\nall of it was so" if not failures else f"\n{len(failures)} of it were not so: {failures}")
        sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
