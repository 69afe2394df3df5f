"""The job files in docs/cluster, as far as they can be read without a cluster: form, and that they say what the program reads."""

from __future__ import annotations

import re
import shlex
import subprocess
import sysconfig
from pathlib import Path

import yaml
from env.paths import ROOT

FOLDER = ROOT / "docs" / "cluster"
RANK_ENVIRONMENT = (ROOT / "crates" / "ranks" / "src" / "rank_environment.rs").read_text(encoding="utf-8")


def options() -> set[str]:
    """The options of `gpulab train-sharded`."""
    text = (ROOT / "crates" / "cli" / "src" / "options.rs").read_text(encoding="utf-8")
    body = text.split("pub struct TrainSharded {")[1].split("\n}")[0]
    return {f"--{name.replace('_', '-')}" for name in re.findall(r"pub (\w+):", body)}


def used(words: list[str]) -> set[str]:
    """The options behind `train-sharded`."""
    return {word for word in words[words.index("train-sharded") :] if word.startswith("--")}


def test_the_slurm_job_is_sound_and_starts_the_program_as_it_is() -> None:
    job = FOLDER / "slurm.sbatch"
    done = subprocess.run(
        [Path(sysconfig.get_path("scripts")) / "shellcheck", job], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    text = job.read_text(encoding="utf-8")
    lines = text.splitlines()
    given = [line for line in lines if line.startswith("#SBATCH")]
    # What stands behind a command is no option of sbatch's any more.
    assert lines[0] == "#!/bin/bash" and given == lines[1 : 1 + len(given)]
    assert all(re.fullmatch(r"#SBATCH --[a-z-]+=\S+", line) for line in given)
    command = re.search(r"if (srun .*?); then", text.replace("\\\n", " "))
    assert command and used(shlex.split(command[1])) and used(shlex.split(command[1])) <= options()
    # 24 examples a step, unless it says another number.
    nodes, tasks = (int(re.search(rf"--{name}=(\d+)", text)[1]) for name in ("nodes", "ntasks-per-node"))
    assert 24 % (nodes * tasks) == 0
    assert all(f'"{name}"' in RANK_ENVIRONMENT for name in ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NODELIST"))


def test_the_jobset_gives_each_rank_its_place() -> None:
    jobset = yaml.safe_load((FOLDER / "jobset.yaml").read_text(encoding="utf-8"))
    assert (jobset["apiVersion"], jobset["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    name, (job,) = jobset["metadata"]["name"], jobset["spec"]["replicatedJobs"]
    spec = job["template"]["spec"]
    pod = spec["template"]["spec"]
    (rank,) = pod["containers"]
    env = {one["name"]: one for one in rank["env"]}
    assert all(f'"{one}"' in RANK_ENVIRONMENT for one in env)
    assert set(env) == {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
    assert spec["completionMode"] == "Indexed" and spec["parallelism"] == spec["completions"]
    assert int(env["WORLD_SIZE"]["value"]) == spec["completions"] and 24 % spec["completions"] == 0
    assert "job-completion-index" in env["RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert env["MASTER_ADDR"]["value"] == f"{name}-{job['name']}-0-0.{name}"
    # A pod that is started again alone would be a rank that nobody knows: the JobSet starts all of them.
    assert (
        pod["restartPolicy"] == "Never" and spec["backoffLimit"] == 0 and jobset["spec"]["failurePolicy"]["maxRestarts"]
    )
    assert used(rank["command"]) and used(rank["command"]) <= options()
    mounts = {mount["name"]: mount["mountPath"] for mount in rank["volumeMounts"]}
    assert mounts == {volume["name"]: "/checkpoints" for volume in pod["volumes"]}
    assert rank["command"][rank["command"].index("--folder") + 1] == "/checkpoints"
