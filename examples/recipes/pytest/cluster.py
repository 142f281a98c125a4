"""The control plane of this worker."""

import json
import os
import subprocess


def kubeconfig():
    """Returns the kubeconfig of the control plane that belongs to this worker alone."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) + 1
    return os.environ.get(f"KUBECONFIG_{worker}", os.environ["KUBECONFIG"])


def kubectl(*args, stdin=None):
    """Runs kubectl and returns what it prints."""
    command = os.environ.get("KUBECTL", "kubectl").split()
    return subprocess.run(
        [*command, f"--kubeconfig={kubeconfig()}", *args],
        input=stdin, capture_output=True, text=True, check=True, timeout=60,
    ).stdout


def apply(*objects):
    """Applies objects."""
    for o in objects:
        kubectl("apply", "-f", "-", stdin=json.dumps(o))
