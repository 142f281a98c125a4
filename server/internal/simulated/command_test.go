package simulated

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestUnderstand(t *testing.T) {
	t.Parallel()
	shell := func(script string) []string { return []string{"/bin/sh", "-c", script} }
	for name, test := range map[string]struct {
		command []string
		want    behavior
		ok      bool
	}{
		"sleep": {
			[]string{"sleep", "1.5", "1m"}, behavior{runs: 61500 * time.Millisecond}, true,
		},
		"sleep for nothing": {[]string{"sleep", ""}, behavior{}, false},
		"exit": {
			shell("echo a; exit 3; sleep 9"), behavior{code: 3, output: "a\n"}, true,
		},
		"exit as before": {shell("false; exit"), behavior{code: 1}, true},
		"skipped":        {shell("false && sleep 9"), behavior{code: 1}, true},
		"not understood": {shell("make install"), behavior{}, false},
	} {
		got, ok := understand(&corev1.Container{Command: test.command})
		if ok != test.ok || ok && got != test.want {
			t.Errorf("%s: got %+v, %v", name, got, ok)
		}
	}
	if got, ok := understand(&corev1.Container{
		Command: shell("sleep 2e9 2e9 2e9; sleep 2e9; sleep 2e9"),
	}); !ok || !got.forever {
		t.Errorf("for centuries: got %+v, %v", got, ok)
	}
}

func TestUnquote(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		`psql  -c "select 1"`: "psql -c select 1",
		`echo 'it "is"' ok`:   `echo it "is" ok`,
		" \t ":                "",
		`a "open`:             "a open",
		"pg_dump *":           "pg_dump *",
	} {
		if got := unquote(line); got != want {
			t.Errorf("%q without quotes is %q, want %q", line, got, want)
		}
	}
}

func TestTasksEnd(t *testing.T) {
	t.Parallel()
	n := &Nodes{Config: Config{JobDuration: 50 * time.Millisecond}}
	always := corev1.ContainerRestartPolicyAlways
	soon, forever := behavior{runs: 50 * time.Millisecond}, behavior{forever: true}
	for name, test := range map[string]struct {
		policy    corev1.RestartPolicy
		container corev1.Container
		want      behavior
	}{
		"helm test": {"Never", corev1.Container{
			Image: "busybox", Command: []string{"wget"}, Args: []string{"web:80"},
		}, soon},
		"arguments":  {"OnFailure", corev1.Container{Args: []string{"up"}}, soon},
		"no command": {"Never", corev1.Container{}, forever},
		"restarted":  {"Always", corev1.Container{Args: []string{"up"}}, forever},
		"restarted by itself": {"Never", corev1.Container{
			Args: []string{"up"}, RestartPolicy: &always,
		}, forever},
		"sleeps": {"Never", corev1.Container{
			Command: []string{"sh", "-c", `echo "a"; sleep 90 && wget web; sleep 1m`},
		}, behavior{runs: 150 * time.Second}},
		"sleeps for ever": {"Never", corev1.Container{
			Command: []string{"sh", "-c", "trap : TERM; sleep infinity & wait"},
		}, forever},
		"follows": {"Never", corev1.Container{Command: []string{"tail", "-f", "/dev/null"}}, forever},
		"loops": {"OnFailure", corev1.Container{
			Command: []string{"sh", "-c", "trap exit TERM; while true; do sleep 1; done"},
		}, forever},
		"leaves a loop": {"Never", corev1.Container{
			Command: []string{"sh", "-c", "while true; do wget web && break; sleep 1; done"},
		}, behavior{runs: time.Second}},
		"shell":  {"Never", corev1.Container{Args: []string{"sh"}, Stdin: true}, forever},
		"pauses": {"Never", corev1.Container{Image: "a/pause:3", Args: []string{"-v"}}, forever},
		"serves": {"Never", corev1.Container{
			Args: []string{"serve"}, Ports: []corev1.ContainerPort{{ContainerPort: 80}},
		}, forever},
		"end-to-end test": {"Never", corev1.Container{
			Image:   "registry.k8s.io/e2e-test-images/agnhost:2.59",
			Command: []string{"/agnhost", "porter"},
		}, forever},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{
			RestartPolicy: test.policy, Containers: []corev1.Container{test.container},
		}}
		if got := n.behavior(p, &p.Spec.Containers[0], regular, 0); got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}
