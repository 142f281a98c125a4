package servertest_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/servertest"
)

// modeVariable makes TestMain behave as the tests of another package would: see rerun.
const modeVariable = "SERVERTEST_MODE"

func TestMain(m *testing.M) {
	switch os.Getenv(modeVariable) {
	case "klog flag":
		klog.InitFlags(nil)
		_ = flag.Set("v", "1")
	case "klog logger":
		klog.SetLogger(funcr.New(func(_, args string) { fmt.Println("logged:", args) }, funcr.Options{}))
	}
	switch os.Getenv(modeVariable) {
	case "without Main":
		os.Exit(m.Run())
	case "start fails":
		servertest.MainWith(m, func(t servertest.TB) servertest.API {
			t.Fatalf("no control plane today")
			return nil
		})
	case "end fails":
		servertest.MainWith(m, func(t servertest.TB) servertest.API {
			t.Cleanup(func() { t.Fatalf("it does not end") })
			return servertest.Run(t)
		})
	default:
		servertest.MainWith(m, func(t servertest.TB) servertest.API {
			c := servertest.Cluster(t)
			servertest.CRDs(t, c, servertest.YAML(definition("shared.example.com", "Crate", "v1")))
			return c
		})
	}
}

// definition returns the definition of a kind, whose plural is its name in lower case with an s.
// The first version is stored.
func definition(group, kind string, versions ...string) string {
	plural := strings.ToLower(kind) + "s"
	var b strings.Builder
	fmt.Fprintf(&b, `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.%s}
spec:
  group: %s
  names: {plural: %s, singular: %s, kind: %s}
  scope: Namespaced
  versions:
`, plural, group, group, plural, strings.ToLower(kind), kind)
	for i, v := range versions {
		fmt.Fprintf(&b, `
  - name: %s
    served: true
    storage: %t
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, v, i == 0)
	}
	return b.String()
}

func TestSharedNamespaces(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	namespaces := map[string]bool{}
	var first servertest.API
	t.Run("users", func(t *testing.T) {
		for i := range 5 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				c, namespace := servertest.Shared(t)
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = c
				}
				if c != first || namespaces[namespace] {
					t.Errorf("namespace %s of %v, after %v of %v", namespace, c, namespaces, first)
				}
				namespaces[namespace] = true
				crates := dynamic.NewForConfigOrDie(c.RESTConfig()).Resource(crates)
				_, err := crates.Namespace(namespace).Create(t.Context(),
					object("shared.example.com/v1", "Crate", "c"), metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	client := kubernetes.NewForConfigOrDie(first.RESTConfig())
	for namespace := range namespaces {
		eventually(t, func(ctx context.Context) error {
			present, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			if err == nil && present.DeletionTimestamp == nil {
				return fmt.Errorf("namespace %s is not deleted", namespace)
			}
			return nil
		})
	}
}

// TestInAnotherProcess is what rerun runs in a process of its own.
func TestInAnotherProcess(t *testing.T) {
	mode := os.Getenv(modeVariable)
	if mode == "" {
		return
	}
	c, namespace := servertest.Shared(t)
	configMaps := kubernetes.NewForConfigOrDie(c.RESTConfig()).CoreV1().ConfigMaps(namespace)
	if _, err := configMaps.Get(t.Context(), "absent", metav1.GetOptions{}); err == nil {
		t.Error("absent exists")
	}
	klog.Info("a library informs")
	klog.Error("a library complains")
	klog.Flush()
	if strings.HasPrefix(mode, "fails") {
		changeInVain(t, configMaps)
		operator := kubernetes.NewForConfigOrDie(servertest.As(c.RESTConfig(), "operator"))
		_, err := operator.CoreV1().ConfigMaps(namespace).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "made"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Error("on purpose")
	}
}

// changeInVain creates and changes a config map, the second time from an old version at first.
func changeInVain(t *testing.T, configMaps typedcorev1.ConfigMapInterface) {
	t.Helper()
	m, err := configMaps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		Data:       map[string]string{"size": "1", "text": strings.Repeat("x", 1000)},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Data["size"] = "2"
	changed, err := configMaps.Update(t.Context(), m, metav1.UpdateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Data = map[string]string{"size": "3"}
	if _, err := configMaps.Update(t.Context(), m, metav1.UpdateOptions{}); err == nil {
		t.Fatal("no conflict")
	}
	m.ResourceVersion = changed.ResourceVersion
	if _, err := configMaps.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// rerun runs TestInAnotherProcess and returns its output and whether it passed. It checks that
// nothing is left in the directory for temporary files.
func rerun(t *testing.T, mode string) (output string, passed bool) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tmp := t.TempDir()
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestInAnotherProcess$", "-test.v")
	cmd.Env = append(os.Environ(), modeVariable+"="+mode, "TMPDIR="+tmp, "TMP="+tmp)
	if strings.Contains(mode, "with reads") {
		cmd.Env = append(cmd.Env, "KINPROC_PRINT_READS=1")
	}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(tmp)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return string(out), cmd.ProcessState.Success()
}

func TestMainStopsAndExits(t *testing.T) {
	t.Parallel()
	requests := []string{"requests to the control plane", "201 create", "409 update",
		"/configmaps/limits by kubernetes-super-admin (servertest.test/", ", test, ", ", revision ",
		", retry 1)", ": Conflict: "}
	versions := []string{"versions of objects", "/limits created by kubernetes-super-admin",
		", test, create)", "/limits updated", "    ~ .data.size: \"2\" → \"3\"\n", "    - .data.text: \"xxx", "xxx…\n",
		"/made created by kubernetes-super-admin (operator, create)\n",
		"versions by control loops and kubelets: "}
	reads := []string{"404 get", "/configmaps/absent", "NotFound"}
	klogs := []string{"a library informs", "a library complains"}
	for _, test := range []struct {
		mode   string
		passes bool
		want   []string
		not    []string
	}{
		{"passes", true, nil, slices.Concat(requests[:1], versions[:1], reads, klogs)},
		{"fails", false, slices.Concat([]string{"on purpose"}, requests, versions),
			slices.Concat(reads, klogs)},
		{"fails, with reads", false, slices.Concat([]string{"on purpose"}, requests, versions, reads),
			klogs},
		{"klog flag", true, klogs, nil},
		{"klog logger", true, append(klogs, "logged: "), nil},
		{"start fails", false, []string{"no control plane today"}, nil},
		{"end fails", false, []string{"PASS: TestInAnotherProcess", "it does not end"}, requests[:1]},
		{"without Main", false, []string{"servertest.Main(m)"}, nil},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			output, passed := rerun(t, test.mode)
			missing := slices.DeleteFunc(slices.Clone(test.want), func(s string) bool {
				return strings.Contains(output, s)
			})
			odd := slices.DeleteFunc(slices.Clone(test.not), func(s string) bool {
				return !strings.Contains(output, s)
			})
			if passed != test.passes || len(missing)+len(odd) > 0 {
				t.Errorf("passed: %t, missing %q, not wanted %q in\n%s", passed, missing, odd, output)
			}
		})
	}
}

// fake is a test that may fail.
type fake struct {
	mu       sync.Mutex
	cleanups []func()
	failed   bool
	output   bytes.Buffer // what it failed with and what it logged
}

// run runs a test with its cleanup functions, and returns it when it has ended.
func run(test func(t *fake)) *fake {
	f := &fake{}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer func() {
			for i := len(f.cleanups) - 1; i >= 0; i-- {
				f.cleanups[i]()
			}
		}()
		test(f)
	}()
	<-ended
	return f
}

func (f *fake) Helper()          {}
func (f *fake) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }
func (f *fake) Failed() bool     { return f.failed }

func (f *fake) Logf(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fmt.Fprintf(&f.output, format+"\n", args...)
}

func (f *fake) Errorf(format string, args ...any) {
	f.Logf(format, args...)
	f.failed = true
}

func (f *fake) Fatalf(format string, args ...any) {
	f.Errorf(format, args...)
	runtime.Goexit()
}

// wantFailure fails t unless the test failed and said so in certain words.
func (f *fake) wantFailure(t *testing.T, words string) {
	t.Helper()
	if !f.failed || !strings.Contains(f.output.String(), words) {
		t.Errorf("failed: %t, %q is missing from %q", f.failed, words, f.output.String())
	}
}
