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

    def test_an_image_that_is_not_there(self):
        broken = deployment("broken", 1)
        broken["spec"]["template"]["spec"]["containers"][0]["image"] = "web:404"
        cluster.apply(broken)
        cluster.kubectl(
            "wait", "pod", "-l", "app=broken", "--timeout=60s",
            "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull",
        )


if __name__ == "__main__":
    unittest.main()
