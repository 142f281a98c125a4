package servertest_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestUser(t *testing.T) {
	t.Parallel()
	shared, namespace := servertest.Shared(t)
	other := servertest.Namespace(t, shared)
	readConfigMaps := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}},
	}
	// list reports which of three lists are allowed, at once: y or n for each.
	list := func(config *rest.Config) string {
		t.Helper()
		client := kubernetes.NewForConfigOrDie(config).CoreV1()
		allowed := ""
		for _, in := range []string{namespace, other, ""} {
			_, err := client.ConfigMaps(in).List(t.Context(), metav1.ListOptions{})
			switch {
			case err == nil:
				allowed += "y"
			case apierrors.IsForbidden(err):
				allowed += "n"
			default:
				t.Error(err)
			}
		}
		return allowed
	}
	for how, c := range map[string]servertest.API{
		"certificate":   shared,
		"impersonation": servertest.ForConfig(shared.RESTConfig()),
	} {
		for i, test := range []struct {
			account servertest.Account
			want    string
		}{
			{servertest.Account{}, "nnn"},
			{servertest.Account{Namespace: namespace, Rules: readConfigMaps}, "ynn"},
			{servertest.Account{Rules: readConfigMaps}, "yyy"},
			{servertest.Account{Namespace: other, ClusterRole: "view"}, "nyn"},
			{servertest.Account{ClusterRole: "cluster-admin"}, "yyy"},
			{servertest.Account{Groups: []string{"system:masters"}}, "yyy"},
		} {
			test.account.Name = fmt.Sprintf("user-%s-%d", how, i)
			config := servertest.User(t, c, test.account)
			if got := list(config); got != test.want {
				t.Errorf("%s: %+v: %s, want %s", how, test.account, got, test.want)
			}
			file := servertest.Kubeconfig(t, config)
			written, err := clientcmd.BuildConfigFromFlags("", file)
			if err != nil {
				t.Fatal(err)
			}
			if got := list(written); got != test.want {
				t.Errorf("%s: %+v by kubeconfig: %s, want %s", how, test.account, got, test.want)
			}
		}
	}
}

func TestUserCleansUp(t *testing.T) {
	t.Parallel()
	c, namespace := servertest.Shared(t)
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"*"}},
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get"},
			ResourceNames: []string{"a"}},
		{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}},
	}
	inner := run(func(f *fake) {
		servertest.User(f, c, servertest.Account{Name: "temporary", Rules: rules})
		servertest.User(f, c, servertest.Account{
			Name: "temporary", Namespace: namespace, Rules: rules[:2], ClusterRole: "edit",
		})
	})
	if inner.failed {
		t.Errorf("%s", &inner.output)
	}
	client := kubernetes.NewForConfigOrDie(c.RESTConfig()).RbacV1()
	all, err := client.ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range all.Items {
		for _, subject := range binding.Subjects {
			if subject.Name == "temporary" {
				t.Errorf("left: %v", binding)
			}
		}
	}
	bindings, err := client.RoleBindings(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(bindings.Items) > 0 {
		t.Errorf("left: %v, %v", bindings, err)
	}
	roles, err := client.Roles(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(roles.Items) > 0 {
		t.Errorf("left: %v, %v", roles, err)
	}
}

func TestUserFails(t *testing.T) {
	t.Parallel()
	c, _ := servertest.Shared(t)
	run(func(f *fake) { servertest.User(f, c, servertest.Account{}) }).
		wantFailure(t, "the name is empty")
	run(func(f *fake) {
		servertest.User(f, c, servertest.Account{Name: "a", ClusterRole: "absent"})
	}).wantFailure(t, `"absent" not found`)
}

// A pod can be created in a new namespace at once.
func TestNamespace(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t)
	for range 5 {
		namespace := servertest.Namespace(t, s)
		_, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().Pods(namespace).Create(
			t.Context(), &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "p"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	bare := servertest.Run(t, servertest.WithoutControllers)
	servertest.Namespace(t, bare) // nobody makes its service account
}

// A failed test prints the versions of its objects also in a bubble, and says so if its control
// plane has stopped.
func TestVersionsOfFailedTest(t *testing.T) {
	t.Parallel()
	fail := func(f *fake, stop bool, configure ...func(*server.Options)) {
		s := servertest.Run(f, configure...)
		client := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default")
		_, err := client.Create(context.Background(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "limits"},
		}, metav1.CreateOptions{})
		if stop {
			err = errors.Join(err, s.Stop(context.Background()))
		}
		f.Errorf("on purpose: %v", err)
	}
	written := "configmaps default/limits created by kubernetes-super-admin"
	t.Run("in a bubble", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			run(func(f *fake) { fail(f, false, servertest.InBubble) }).wantFailure(t, written)
		})
	})
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		f := run(func(f *fake) { fail(f, true) })
		f.wantFailure(t, "on purpose: <nil>")
		f.wantFailure(t, "versions of objects:\nnamespace default: ")
	})
}

func TestLogsOfFailedTest(t *testing.T) {
	t.Parallel()
	act := func(f *fake, configure ...func(*server.Options)) {
		client := kubernetes.NewForConfigOrDie(servertest.Run(f, configure...).RESTConfig())
		for i := range 150 {
			err := client.CoreV1().ConfigMaps("default").Delete(t.Context(),
				fmt.Sprintf("absent-%d-%s", i, strings.Repeat("x", 200)), metav1.DeleteOptions{})
			if !apierrors.IsNotFound(err) {
				f.Errorf("%v", err)
			}
		}
	}
	passed := run(func(f *fake) { act(f) })
	if passed.failed || passed.output.Len() > 0 {
		t.Errorf("a test that passes printed %s", &passed.output)
	}
	failed := run(func(f *fake) {
		act(f)
		f.Errorf("on purpose")
	})
	failed.wantFailure(t, "404 delete /api/v1/namespaces/default/configmaps/absent-149-xxx")
	failed.wantFailure(t, " by kubernetes-super-admin")
	failed.wantFailure(t, " earlier lines")
	if n := failed.output.Len(); n > 120_000 {
		t.Errorf("%d bytes of logs", n)
	}
	if strings.Contains(failed.output.String(), "absent-1-x") {
		t.Error("an early request is in the log")
	}

	noKey := filepath.Join(t.TempDir(), "no.key") // found when something has been logged
	if err := os.WriteFile(noKey, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY"}), 0o600); err != nil {
		t.Fatal(err)
	}
	noStart := run(func(f *fake) {
		servertest.Run(f, func(o *server.Options) { o.ServiceAccountKeyFiles = []string{noKey} })
	})
	noStart.wantFailure(t, "servertest: start:")
	noStart.wantFailure(t, "log of the control plane")
}

// Tests run in an existing cluster if the environment says so.
func TestExistingCluster(t *testing.T) { // not parallel: it sets environment variables
	const variable = "KINPROC_USE_EXISTING_CLUSTER"
	existing := servertest.Run(t)
	t.Setenv("KUBECONFIG", servertest.Kubeconfig(t, existing.RESTConfig()))
	t.Setenv(variable, "true")
	before := inventory(t, existing)
	inner := run(func(f *fake) {
		c := servertest.Cluster(f, func(*server.Options) { f.Errorf("options of a new control plane") })
		if _, ok := c.(*server.Server); ok {
			f.Errorf("a new control plane")
		}
		namespace := servertest.Namespace(f, c)
		servertest.CRDs(f, c, servertest.YAML(definition("there.example.com", "Hut", "v1")))
		servertest.Apply(f, c, namespace,
			servertest.Objects(object("there.example.com/v1", "Hut", "h")))
		servertest.User(f, c, servertest.Account{Name: "guest", ClusterRole: "view"})
		servertest.Webhooks(f, c, servertest.YAML(manifests))
		if now := inventory(t, existing); now == before {
			f.Errorf("nothing happened in the existing cluster: %s", now)
		}
	})
	if inner.failed {
		t.Errorf("%s", &inner.output)
	}
	eventually(t, func(ctx context.Context) error {
		if now := inventory(t, existing); now != before {
			return fmt.Errorf("left behind: before %s, now %s", before, now)
		}
		return nil
	})

	t.Setenv(variable, "maybe")
	run(func(f *fake) { servertest.Cluster(f) }).wantFailure(t, `"maybe" is neither true nor false`)
	t.Setenv(variable, "1")
	t.Setenv("KUBECONFIG", t.TempDir()+"/absent")
	t.Setenv("HOME", t.TempDir())
	run(func(f *fake) { servertest.Cluster(f) }).wantFailure(t, variable)
	t.Setenv(variable, "false")
	if c, ok := servertest.Cluster(t).(*server.Server); !ok {
		t.Errorf("%v is not a new control plane", c)
	}
}

// inventory returns the names of the objects that helpers create.
func inventory(t *testing.T, s *server.Server) string {
	t.Helper()
	client := dynamic.NewForConfigOrDie(s.RESTConfig())
	var names []string
	for _, resource := range []string{
		"/v1/namespaces", "apiextensions.k8s.io/v1/customresourcedefinitions",
		"rbac.authorization.k8s.io/v1/clusterrolebindings",
		"admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
		"admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
	} {
		parts := strings.Split(resource, "/")
		list, err := client.Resource(schema.GroupVersionResource{
			Group: parts[0], Version: parts[1], Resource: parts[2],
		}).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range list.Items {
			names = append(names, item.GetName())
		}
	}
	return strings.Join(names, " ")
}
