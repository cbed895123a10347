"""The files for Slurm and Kubernetes, without either: what they say, and what JAX reads from it.

JOBSET is a schema of our own, for the part of JobSet v1alpha2 (and of Job and Pod in it) that our
file uses, written after their reference documentation: the published one has 800 kB. A field that
it does not know is an error here, as a misspelled one would be ignored by Kubernetes.
"""

import copy
import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import pytest
import yaml

from seejax.training import command as cli

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples" / "cluster"
SBATCH, RECORD = CLUSTER / "train.sbatch", CLUSTER / "slurm.json"
PARTS = {part["kind"]: part for part in yaml.safe_load_all((CLUSTER / "jobset.yaml").read_text())}

NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 63}
COUNT = {"type": "integer", "minimum": 0}


def an_object(required: str = "", **properties: dict) -> dict:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def array(items: dict) -> dict:
    return {"type": "array", "items": items, "minItems": 1}


STRINGS = array({"type": "string"})
CONTAINER = an_object(
    "name image",
    name=NAME,
    image={"type": "string"},
    command=STRINGS,
    args=STRINGS,
    ports=array(an_object("containerPort", containerPort=COUNT | {"maximum": 65535})),
    resources=an_object(limits={"type": "object"}, requests={"type": "object"}),
    volumeMounts=array(an_object("name mountPath", name=NAME, mountPath={"type": "string"})),
)
CLAIM = an_object("claimName", claimName=NAME)
POD = an_object(
    "containers restartPolicy",  # in a Job: no default
    containers=array(CONTAINER),
    restartPolicy={"enum": ["Never", "OnFailure"]},
    serviceAccountName=NAME,
    volumes=array(an_object("name", name=NAME, persistentVolumeClaim=CLAIM)),
)
JOB = an_object(
    "template",
    parallelism=COUNT,
    completions=COUNT,
    completionMode={"enum": ["NonIndexed", "Indexed"]},
    backoffLimit=COUNT,
    template=an_object("spec", spec=POD),
)
REPLICATED = an_object(
    "name template", name=NAME, replicas=COUNT, template=an_object("spec", spec=JOB)
)
JOBSET = an_object(
    "apiVersion kind metadata spec",
    apiVersion={"const": "jobset.x-k8s.io/v1alpha2"},
    kind={"const": "JobSet"},
    metadata=an_object("name", name=NAME),
    spec=an_object(
        "replicatedJobs",
        failurePolicy=an_object(maxRestarts=COUNT),
        replicatedJobs=array(REPLICATED),
    ),
)


def job_of(jobset: dict) -> dict:
    (replicated,) = jobset["spec"]["replicatedJobs"]
    return replicated["template"]["spec"]


def test_the_jobset_has_the_fields_of_a_jobset():
    jsonschema.validate(PARTS["JobSet"], JOBSET)
    for break_it in (
        lambda job: job.update(completionMod="Indexed"),
        lambda job: job.update(completionMode="indexed"),
        lambda job: job["template"]["spec"].update(restartPolicy="Always"),
        lambda job: job.update(parallelism="2"),
    ):
        broken = copy.deepcopy(PARTS["JobSet"])
        break_it(job_of(broken))
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, JOBSET)


def test_what_it_names_is_there():
    pod = job_of(PARTS["JobSet"])["template"]["spec"]
    account = {"kind": "ServiceAccount", "name": pod["serviceAccountName"]}
    binding, role = PARTS["RoleBinding"], PARTS["Role"]
    assert PARTS["ServiceAccount"]["metadata"]["name"] == account["name"]
    assert binding["subjects"] == [account]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    mounts = {mount["name"]: mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    (script,) = pod["containers"][0]["args"]
    workdir = re.search(r"--workdir (\S+)", script)[1]
    assert workdir.startswith(mounts["runs"] + "/") and f"{workdir}/config.json" in script


@pytest.mark.parametrize("index", [0, 1])
def test_jax_reads_from_it_who_belongs_together(monkeypatch, index):
    """By JAX's own code, and an API that answers as one does for our file."""
    from jax._src.clusters.k8s_cluster import K8sCluster

    for cached in ("_pod", "_job", "_controller", "_headless_svc", "_namespace"):
        if found := K8sCluster.__dict__.get(cached):
            getattr(found.__func__, "cache_clear", lambda: None)()
    jobset, used = PARTS["JobSet"], set()
    (replicated,) = jobset["spec"]["replicatedJobs"]
    name = f"{jobset['metadata']['name']}-{replicated['name']}-0"  # its only replica
    labels = {"jobset.sigs.k8s.io/jobset-name": jobset["metadata"]["name"]}
    job = SimpleNamespace(
        metadata=SimpleNamespace(name=name, labels=labels),
        spec=SimpleNamespace(**job_of(jobset)),
    )
    pod = SimpleNamespace(
        metadata=SimpleNamespace(
            name=f"{name}-{index}",
            labels={"job-name": name},
            owner_references=[SimpleNamespace(controller=True, kind="Job")],
        ),
        spec=SimpleNamespace(subdomain=jobset["metadata"]["name"]),
    )

    def answer(resource: str, verb: str, what: object):
        def call(*_: object, **__: object) -> object:
            used.add((resource, verb))
            return what

        return call

    pods = SimpleNamespace(items=[pod])
    api = SimpleNamespace(
        config=SimpleNamespace(load_incluster_config=lambda: None),
        client=SimpleNamespace(
            CoreV1Api=lambda: SimpleNamespace(list_namespaced_pod=answer("pods", "list", pods)),
            BatchV1Api=lambda: SimpleNamespace(read_namespaced_job=answer("jobs", "get", job)),
            exceptions=SimpleNamespace(ApiException=OSError),
        ),
    )
    monkeypatch.setitem(sys.modules, "kubernetes", api)
    monkeypatch.setattr(K8sCluster, "_namespace", lambda: "default")
    monkeypatch.setattr(socket, "gethostbyname", lambda host: "10.0.0.1")
    for variable, value in {
        "KUBERNETES_SERVICE_HOST": "10.0.0.0",
        "HOSTNAME": f"{name}-{index}",
        "JOB_COMPLETION_INDEX": str(index),
    }.items():
        monkeypatch.setenv(variable, value)

    assert K8sCluster.is_env_present()
    container = job_of(jobset)["template"]["spec"]["containers"][0]
    port = container["ports"][0]["containerPort"]
    address = K8sCluster.get_coordinator_address(5, None)
    assert address == f"digits-train-0-0.digits:{port}"
    assert K8sCluster.get_process_count() == 2 == job_of(jobset)["completions"]
    assert K8sCluster.get_process_id() == index
    allowed = {(r["resources"][0], verb) for r in PARTS["Role"]["rules"] for verb in r["verbs"]}
    assert used == allowed  # enough, and not more


def test_the_commands_of_both_files_are_ours():
    (script,) = job_of(PARTS["JobSet"])["template"]["spec"]["containers"][0]["args"]
    for text in (SBATCH.read_text("utf8"), script):
        checked = subprocess.run(["bash", "-n"], input=text, text=True, timeout=60)
        assert checked.returncode == 0
        said = text.replace("\\\n", " ")
        (command,) = re.findall(r"python -m seejax\.training(.*)$", said, re.MULTILINE)
        options = command.replace('"$@"', "").replace('"$workdir"', "folder").split()
        args = cli._parse(options)
        assert args.processes.distributed and args.run.workdir
        assert "--resume" in text


def test_the_record_is_of_the_job_file_and_names_no_machine():
    record = json.loads(RECORD.read_text("utf8"))
    for run in ("two", "killed", "resumed", "stopped"):
        assert record[run]["command"].startswith(f"sbatch {SBATCH.name} runs/")
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", RECORD.read_text("utf8"))
    assert record["two"]["ExitCode"] == record["resumed"]["ExitCode"] == "0:0"
    epochs = [line for line in record["two"]["log"] if re.match(r"0: epoch", line)]
    assert len(epochs) == len(record["losses"]["two"])


def test_without_root_or_slurm_there_is_one_clear_line(tmp_path):
    fake = tmp_path / "bin" / "id"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 1000\n", "utf8")
    fake.chmod(0o755)
    done = subprocess.run(
        [ROOT / "tests" / "slurm" / "cluster.sh", "up", tmp_path / "slurm"],
        env=os.environ | {"PATH": f"{fake.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert re.match(r"test-slurm: (Slurm is missing; .*apt-get install|.*run this as root)", line)


def test_under_slurm_jax_reads_who_it_is_and_takes_the_gpu_of_its_number(monkeypatch):
    from jax._src.clusters import ClusterEnv

    for variable in ("KUBERNETES_SERVICE_HOST", "JAX_COORDINATOR_PORT"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in {
        "SLURM_JOB_ID": "4097",
        "SLURM_STEP_NODELIST": "node[07-09],other",
        "SLURM_NTASKS": "6",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
    }.items():
        monkeypatch.setenv(variable, value)
    found = ClusterEnv.auto_detect_unset_distributed_params(None, None, None, None, None, 10)
    address, processes, me, gpus = found
    assert re.fullmatch(r"node07:\d+", address) and (processes, me, gpus) == (6, 3, [1])
