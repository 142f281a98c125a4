"""pytest and python -m unittest both run this."""

import unittest

import cluster


def deployment(name, replicas):
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    }


class Rollout(unittest.TestCase):
    def test_pods_become_ready(self):
        cluster.apply(deployment("web", 3))
        said = cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
        self.assertIn("successfully rolled out", said)

    def test_a_job_completes(self):
        cluster.kubectl("create", "job", "backup", "--image=backup", "--", "sleep", "1")
        said = cluster.kubectl("wait", "job/backup", "--for=condition=complete", "--timeout=50s")
        self.assertIn("condition met", said)


if __name__ == "__main__":
    unittest.main()
