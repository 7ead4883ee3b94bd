"""The Azure ML SDK on a Neap server: after `eval "$(neap env)"` these are the lines one writes against Azure."""

import os

from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import AmlCompute, Environment
from azure.identity import DefaultAzureCredential

ml = MLClient(DefaultAzureCredential(), os.environ["NEAP_SUBSCRIPTION_ID"], os.environ["NEAP_RESOURCE_GROUP"], os.environ["NEAP_WORKSPACE"])

cluster = AmlCompute(name="sdk-cluster", size="STANDARD_DS3_v2", min_instances=0, max_instances=2, idle_time_before_scale_down=120)
ml.compute.begin_create_or_update(cluster).result()

job = ml.jobs.create_or_update(
    command(command="echo hello from $(hostname)", compute="sdk-cluster", environment=Environment(image="library/python:latest"))
)
ml.jobs.stream(job.name)
print(job.name, ml.jobs.get(job.name).status)
ml.compute.begin_delete("sdk-cluster").wait()
