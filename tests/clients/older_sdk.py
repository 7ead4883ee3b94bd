"""Run with the older azure-ai-ml: clusters, a job with code, and archiving by PUT, as that version does it."""

import os
import sys
import tempfile
from pathlib import Path

from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import AmlCompute, Environment
from azure.identity import DefaultAzureCredential

env = os.environ
ml = MLClient(DefaultAzureCredential(), env["NEAP_SUBSCRIPTION_ID"], env["NEAP_RESOURCE_GROUP"], env["NEAP_WORKSPACE"])
name, job_name = sys.argv[1:3]

made = ml.compute.begin_create_or_update(AmlCompute(name=name, size="STANDARD_DS3_v2", min_instances=0, max_instances=1, idle_time_before_scale_down=30, tier="low_priority")).result()
assert (made.name, made.tier, made.max_instances) == (name, "low_priority", 1), made
made.max_instances = 2
assert ml.compute.begin_update(made).result().max_instances == 2
assert name in [c.name for c in ml.compute.list()]
assert any(s.v_cp_us == 4 for s in ml.compute.list_sizes() if s.name.upper() == "STANDARD_DS3_V2")
assert list(ml.compute.list_usage()) is not None

code = Path(tempfile.mkdtemp())
(code / "hello.py").write_text("print('from the older SDK')\n")
job = ml.jobs.create_or_update(command(name=job_name, code=str(code), command="python hello.py", compute=name, environment=Environment(image="library/python:latest"), experiment_name="older"))
ml.jobs.stream(job.name)
assert ml.jobs.get(job.name).status == "Completed"
assert all(n.node_id for n in ml.compute.list_nodes(name))
ml.jobs.archive(job.name)
assert job.name not in [j.name for j in ml.jobs.list() if j]
ml.jobs.restore(job.name)
ml.jobs.download(job.name, download_path=code / "down", all=True)
assert any("from the older SDK" in p.read_text() for p in (code / "down").rglob("*.txt"))
ml.compute.begin_delete(name).wait()
print("OK")
