"""Slurm from Debian: munged, slurmctld and slurmd of its own in a temporary folder, on the loopback, as root.

Nothing under /etc is read or written. The settings follow Slurm's guide for high throughput: no accounting, no job
completion records, priority/basic, sched/builtin, jobs forgotten after seconds, little logging. The guide's example of
SchedulerParameters lets seconds pass between two looks at the queue, which a node of few slots spends waiting, so here
none pass. An Epilog that does nothing is set because only its end makes Slurm look at the queue at once; without it
Slurm looks once a second and is twenty times slower on a node of two slots. Slurm writes a job's script at submit and
its other state from a background thread within seconds, so that an acknowledged job is not yet durable.
"""

import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from peer import Latency, Missing, Peer, Sample, Setting
from processes import Daemons, end_holders, free_ports, wait_until

NAME = "Slurm"
GUIDE = (
    "select/cons_tres, sched/builtin, sched_min_interval=0, priority/basic, no accounting, MinJobAge=2, an empty Epilog"
)
SOON = "within seconds"

NOOP = [
    Setting(
        "slurm-array", "one job array", f"{GUIDE}, proctrack/linuxproc; sbatch --array --wrap true", durable=SOON, n=300
    ),
    Setting(
        "slurm-each",
        "an sbatch for each job",
        f"{GUIDE}, proctrack/linuxproc; sbatch --wrap true, as many at once as there are slots",
        durable=SOON,
        n=300,
    ),
    Setting(
        "slurm-cgroup",
        "one job array, cgroups",
        f"{GUIDE}, proctrack/cgroup; sbatch --array --wrap true",
        durable=SOON,
        n=300,
    ),
]
LATENCY = [
    Setting(
        "slurm-sbatch",
        "sbatch",
        f"{GUIDE}, proctrack/linuxproc; one sbatch after the other, at which slurmctld looks once a second "
        "(sbatch --wait asks too rarely to time the end)",
        durable=SOON,
        n=20,
    ),
    Setting("slurm-srun", "srun", f"{GUIDE}, proctrack/linuxproc; one srun after the other", durable=SOON, n=20),
]
POWER = "a CLOUD node whose ResumeProgram starts slurmd here; SuspendTime=1, SuspendTimeout=1, power_save_interval=1"
COLD = [
    Setting("slurm-power-srun", "power saving, srun", f"{POWER}; srun asks whether the node is up", durable=SOON, n=5),
    Setting(
        "slurm-power-sbatch",
        "power saving, sbatch",
        f"{POWER}; slurmctld looks every 30 s whether the node of a batch job is up",
        durable=SOON,
        n=1,
    ),
]

PROGRAMS = ["munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "sdiag"]
SBATCH = ["sbatch", "--quiet", "--output=/dev/null", "--error=/dev/null"]
NODE = "n1"
# A node that answers sooner than slurmctld has noted that it is starting is never given its batch job.
BOOT_S = 0.1
# How often slurmctld looks at new batch jobs, and whether the node of a batch job is up.
BATCH_LOOK_S = 1
RESUMED_LOOK_S = 30
STAMP = "#!/bin/bash\necho $EPOCHREALTIME\n"
# Where Debian keeps daemons may not be on everybody's path.
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Slurm(Peer):
    name = NAME

    def __init__(self):
        self.folder: Path | None = None
        self.daemons: Daemons | None = None

    def version(self) -> str:
        if os.geteuid() != 0:
            raise Missing("its daemons need root here")
        missing = [name for name in PROGRAMS if not shutil.which(name, path=PATH)]
        if missing:
            raise Missing(f"not installed: {', '.join(missing)} (Debian: slurmctld slurmd slurm-client munge)")
        return subprocess.run([program("slurmctld"), "-V"], capture_output=True, text=True, check=True).stdout.split()[
            -1
        ]

    def start(self, setting: Setting, slots: int) -> None:
        self.slots = slots
        self.folder = Path(tempfile.mkdtemp(prefix="neap-peers-slurm-"))
        self.daemons = Daemons(self.folder)
        self.configure(setting, slots)
        self.environment = {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf"), "HOME": "/root", "LANG": "C"}
        self.daemons.start(
            program("munged"),
            "--foreground",
            "--force",
            "--num-threads=10",
            f"--socket={self.folder}/munge.sock",
            f"--key-file={self.folder}/munge.key",
            f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munged.seed",
        )
        wait_until((self.folder / "munge.sock").exists, "munged listens")
        self.daemons.start(program("slurmctld"), "-D", "-f", str(self.folder / "slurm.conf"), env=self.environment)
        if setting in COLD:
            self.wait_for_node("idle~")
            return
        self.daemons.start(
            program("slurmd"), "-D", "-N", NODE, "-f", str(self.folder / "slurm.conf"), env=self.environment
        )
        self.wait_for_node("idle")
        self.submit_array(4 * slots)
        self.wait_for_no_jobs()

    def noop(self, setting: Setting, n: int) -> float:
        before = self.completed()
        begun = time.monotonic()
        if setting.key == "slurm-each":
            self.ask("xargs", "-P", str(self.slots), "-n", "1", *SBATCH, "--wrap=true", "-J", words=" job" * n)
        else:
            self.submit_array(n)
        self.wait_for_no_jobs()
        seconds = time.monotonic() - begun
        ran = self.completed() - before
        if ran != n:
            raise RuntimeError(f"Slurm completed {ran} of {n} jobs")
        return n / seconds

    def latency(self, setting: Setting, n: int) -> Latency:
        return Latency.of([self.one(setting) for _ in range(n)])

    def cold(self, setting: Setting, n: int) -> Latency:
        samples = []
        for _ in range(n):
            self.wait_for_node("idle~")
            samples.append(self.one(setting))
        return Latency.of(samples)

    def stop(self) -> None:
        if self.folder is None:
            return
        try:
            # A job whose end nobody hears of would try to tell it for ever.
            self.wait_for_no_jobs(5)
        except (RuntimeError, OSError, subprocess.SubprocessError):
            pass
        self.daemons.stop()
        # What the daemons started themselves: a slurmd that was resumed, the supervisor of a job.
        end_holders(self.folder)
        remove_cgroups()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder = None

    def configure(self, setting: Setting, slots: int) -> None:
        folder = self.folder
        controller, node = free_ports(2)
        tracker = "cgroup" if setting.key == "slurm-cgroup" else "linuxproc"
        key = folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        (folder / "state").mkdir()
        (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
        (folder / "stamp.sh").write_text(STAMP)
        conf = f"""
ClusterName=peers
SlurmctldHost={socket.gethostname()}(127.0.0.1)
SlurmctldPort={controller}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldDebug=error
SlurmdDebug=error
ProctrackType=proctrack/{tracker}
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
PriorityType=priority/basic
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/none
MinJobAge=2
MaxJobCount=20000
MaxArraySize=20001
ReturnToService=2
PrivateData=cloud
Epilog=/bin/true
SlurmdParameters=config_overrides
"""
        node_line = f"NodeName={NODE} NodeHostname={socket.gethostname()} NodeAddr=127.0.0.1 Port={node} CPUs={slots}"
        if setting in COLD:
            conf += self.power_saving(setting)
            node_line += " State=CLOUD"
        conf += f"{node_line}\nPartitionName=all Nodes={NODE} Default=YES MaxTime=INFINITE State=UP\n"
        (folder / "slurm.conf").write_text(conf)

    def power_saving(self, setting: Setting) -> str:
        """A node that is off is a slurmd that does not run."""
        folder = self.folder
        resume, suspend = folder / "resume", folder / "suspend"
        boot_s = 0 if setting.key.endswith("srun") else BOOT_S
        start = f'{program("slurmd")} -b -N "$1" -f {folder}/slurm.conf'
        resume.write_text(f"#!/bin/sh\nsleep {boot_s}\nexec {start} </dev/null >/dev/null 2>&1\n")
        # What slurmctld starts has SIGTERM blocked, so that its slurmd has too.
        suspend.write_text(f'#!/bin/sh\nkill -KILL "$(cat {folder}/slurmd-"$1".pid)"\n')
        for script in (resume, suspend):
            script.chmod(0o755)
        return f"""
SlurmctldParameters=power_save_interval=1,idle_on_node_suspend,cloud_dns
ResumeProgram={resume}
SuspendProgram={suspend}
ResumeRate=0
SuspendRate=0
ResumeTimeout=10
SuspendTime=1
SuspendTimeout=1
"""

    def ask(self, *argv: str, words: str = "") -> str:
        done = subprocess.run(
            [program(argv[0]), *argv[1:]],
            env=self.environment,
            cwd=self.folder,
            input=words,
            capture_output=True,
            text=True,
            timeout=300,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{argv[0]} failed: {done.stderr.strip()}")
        return done.stdout

    def submit_array(self, n: int) -> None:
        self.ask(*SBATCH, f"--array=1-{n}", "--wrap=true")

    def one(self, setting: Setting) -> Sample:
        self.wait_for_no_jobs()
        # slurmctld does many things at intervals: submits fall on all parts of them alike.
        time.sleep(random.uniform(0, RESUMED_LOOK_S if setting.key == "slurm-power-sbatch" else BATCH_LOOK_S))
        return self.srun() if setting.key.endswith("srun") else self.sbatch()

    def sbatch(self) -> Sample:
        # The job makes its file when it starts and fills it when its first command runs.
        sent = time.time()
        job = self.ask(
            "sbatch", "--parsable", f"--output={self.folder}/stamp-%j", str(self.folder / "stamp.sh")
        ).strip()
        stamp = self.folder / f"stamp-{job}"
        wait_until(lambda: stamp.exists() and stamp.read_text().endswith("\n"), f"job {job} has run", every_s=0.001)
        return Sample((float(stamp.read_text()) - sent) * 1e3)

    def srun(self) -> Sample:
        sent = time.time()
        printed = self.ask("srun", "--quiet", "--ntasks=1", "/bin/bash", "-c", "echo $EPOCHREALTIME")
        done = time.time()
        return Sample((float(printed) - sent) * 1e3, (done - sent) * 1e3)

    def completed(self) -> int:
        return int(re.search(r"Jobs completed:\s*(\d+)", self.ask("sdiag")).group(1))

    def wait_for_no_jobs(self, timeout_s: float = 300) -> None:
        # Each question costs the machine some milliseconds, so that it is not asked often.
        wait_until(lambda: not self.ask("squeue", "--noheader").strip(), "no job is left", timeout_s, every_s=0.1)

    def wait_for_node(self, state: str) -> None:
        def there() -> bool:
            try:
                return self.ask("sinfo", "--noheader", "--Node", "--format=%t").strip() == state
            except RuntimeError:
                return False

        try:
            wait_until(there, f"the node is {state}", 60, every_s=0.1)
        except RuntimeError as error:
            raise RuntimeError(f"{error}: {self.last_errors()}") from error

    def last_errors(self) -> str:
        lines = []
        for log in self.folder.glob("*.log"):
            lines += [
                line for line in log.read_text(errors="replace").splitlines() if "error" in line or "fatal" in line
            ][-1:]
        return "; ".join(lines) or "no error in its logs"


def program(name: str) -> str:
    return shutil.which(name, path=PATH) or name


def remove_cgroups() -> None:
    """The empty groups that slurmd leaves behind, deepest first; a group in use stays."""
    for top in [*Path("/sys/fs/cgroup").glob(f"*/slurm_{NODE}"), *Path("/sys/fs/cgroup").glob(f"slurm_{NODE}")]:
        for folder, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


PEER = Slurm
