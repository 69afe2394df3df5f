"""JupyterHub for a class on one machine: each learner has an account of the machine, a folder, and limits.

    jupyterhub -f env/hub/jupyterhub_config.py        (as root, with jupyterhub and systemdspawner installed)

What is measured of it, and how many learners a machine carries: docs/classroom-hub.md.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
c = get_config()  # noqa: F821 (JupyterHub gives it)

# One learner: what a notebook and its compiler need, and no more than that of a neighbour's.
MEMORY = os.environ.get("SEAT_MEMORY", "4G")
CPUS = float(os.environ.get("SEAT_CPUS", "2"))

c.JupyterHub.bind_url = os.environ.get("HUB_URL", "http://127.0.0.1:8000")
c.Spawner.default_url = "/lab"
c.Spawner.cmd = [str(Path(sys.executable).parent / "jupyterhub-singleuser")]
c.Spawner.mem_limit, c.Spawner.cpu_limit = MEMORY, CPUS
# The course's kernel stands in the entry that `make kernel` writes; the hub's Python finds it by this path.
# Rust and the crates are those of the account that ran `make setup`: with another CARGO_HOME a kernel would build all anew.
c.Spawner.environment = {
    "JUPYTER_PATH": str(ROOT / ".venv" / "share" / "jupyter"),
    "CARGO_HOME": os.environ.get("CARGO_HOME") or str(Path.home() / ".cargo"),
    "RUSTUP_HOME": os.environ.get("RUSTUP_HOME") or str(Path.home() / ".rustup"),
}
c.Spawner.start_timeout = 120
# A seat that nobody uses gives its memory back: the page stays, kernels end.
c.Spawner.args = ["--MappingKernelManager.cull_idle_timeout=3600", "--MappingKernelManager.cull_interval=300"]

if os.environ.get("HUB_TRIAL") == "1":
    # For a trial on one's own account: any name, one password, no limits that only systemd can hold.
    c.JupyterHub.authenticator_class = "dummy"
    c.DummyAuthenticator.password = os.environ["HUB_PASSWORD"]
    c.Authenticator.allow_all = True
    c.JupyterHub.spawner_class = "simple"
    c.SimpleLocalProcessSpawner.home_dir_template = os.environ["HUB_HOMES"] + "/{username}"
    # All at this checkout: a trial is of the machine, and not of the learners' folders.
    c.Spawner.notebook_dir = str(ROOT)
    c.JupyterHub.db_url = "sqlite:///" + os.environ["HUB_HOMES"] + "/hub.sqlite"
    c.JupyterHub.cookie_secret_file = os.environ["HUB_HOMES"] + "/cookie_secret"
    if token := os.environ.get("HUB_TOKEN"):
        scopes = ["admin:users", "admin:servers", "tokens", "access:servers"]
        c.JupyterHub.services = [{"name": "measure", "api_token": token}]
        c.JupyterHub.load_roles = [{"name": "measure", "scopes": scopes, "services": ["measure"]}]
    if os.geteuid() == 0:
        c.Spawner.args = [*c.Spawner.args, "--allow-root"]
else:
    # The machine's own accounts by PAM; systemd holds the limits of each seat as a unit of its own.
    c.JupyterHub.authenticator_class = "pam"
    c.PAMAuthenticator.allowed_groups = {os.environ.get("HUB_GROUP", "learners")}
    c.JupyterHub.spawner_class = "systemd"
    c.SystemdSpawner.isolate_tmp = True
    c.SystemdSpawner.disable_user_sudo = True
