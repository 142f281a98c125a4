package examples_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kinproc/kinproc/examples/kubectl"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestCrontab(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, patient)
	k := kubectl.New(t, s)
	k.Run("apply", "-f", "crontab/manifests/definition.yaml")
	k.WaitEstablished("crontabs.simple.extension.io")
	start(t, folder(t, s), "crontab")

	k.Run("apply", "-f", "crontab/manifests/crontab.yaml")
	k.Run("wait", "--for=jsonpath={.status.replicas}=1", "crontab/my-crontab", "--timeout=60s")
	const summary = "jsonpath={.spec.schedule} {.spec.jobTemplate.spec.parallelism} " +
		"{.spec.jobTemplate.spec.template.spec.containers[0].image}"
	if got := k.Run("get", "cronjob", "my-crontab", "-o", summary); got !=
		"*/5 * * * * 1 my-cron-image:1" {
		t.Errorf("CronJob: %s", got)
	}
	out := k.Run("get", "ct")
	for _, want := range []string{"SCHEDULE", "*/5 * * * *"} {
		if !strings.Contains(out, want) {
			t.Errorf("kubectl get ct: %q is missing from\n%s", want, out)
		}
	}

	// The operator reacts to changes of the CronTab and of the CronJob.
	k.Run("scale", "crontab/my-crontab", "--replicas=3")
	k.Run("wait", "--for=jsonpath={.spec.jobTemplate.spec.parallelism}=3",
		"cronjob/my-crontab", "--timeout=60s")
	k.Run("patch", "cronjob", "my-crontab", "--type=merge", "-p", `{"spec":{"schedule":"0 0 * * *"}}`)
	k.Run("wait", "--for=jsonpath={.spec.schedule}=*/5 * * * *", "cronjob/my-crontab", "--timeout=60s")
	k.Run("delete", "cronjob", "my-crontab")
	k.Run("wait", "--for=create", "cronjob/my-crontab", "--timeout=60s")

	if out, err := k.Try("patch", "crontab", "my-crontab", "--type=merge", "-p",
		`{"spec":{"replicas":11}}`); err == nil {
		t.Errorf("too many replicas: %s", out)
	}
	k.Run("delete", "crontab", "my-crontab")
	k.Run("wait", "--for=delete", "cronjob/my-crontab", "--timeout=60s")
	k.Run("delete", "crd", "crontabs.simple.extension.io")
	eventually(t, func() error { // the server of the objects learns of it after kubectl
		_, err := k.Try("get", "crontabs")
		if err == nil || !strings.Contains(err.Error(), "could not find the requested resource") {
			return fmt.Errorf("without the definition: %v", err)
		}
		return nil
	})
}
