package servertest_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"

	"github.com/kinproc/kinproc/chain/fault"
	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest"
)

func Example() {
	t := new(test) // the *testing.T of a test
	defer t.end()

	s := servertest.Run(t)
	config := kubernetes.NewForConfigOrDie(s.RESTConfig()).CoreV1().ConfigMaps("default")
	made, err := config.Create(context.Background(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "settings-"},
		Data:       map[string]string{"color": "green"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	fmt.Println(made.Data["color"])
	// Output: green
}

// Functions change the options. Without control loops nobody makes the service account of a
// namespace, and nothing happens but what the test does.
func ExampleRun() {
	t := new(test)
	defer t.end()

	s := servertest.Run(t, servertest.WithoutControllers, func(o *server.Options) {
		o.RuntimeConfig = map[string]string{"scheduling.k8s.io/v1beta1": "true"}
	})
	served, err := kubernetes.NewForConfigOrDie(s.RESTConfig()).ServerGroups()
	if err != nil {
		t.Fatalf("discovery: %v", err)
	}
	for _, group := range served.Groups {
		if group.Name == "scheduling.k8s.io" {
			for _, version := range group.Versions {
				fmt.Println(version.GroupVersion)
			}
		}
	}
	// Output:
	// scheduling.k8s.io/v1
	// scheduling.k8s.io/v1beta1
}

// Manifests may have a CRD and its custom resources.
func ExampleApply() {
	t := new(test)
	defer t.end()

	s := servertest.Run(t)
	stored := servertest.Apply(t, s, "default", servertest.YAML(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ponds.example.com}
spec:
  group: example.com
  names: {plural: ponds, singular: pond, kind: Pond}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties: {ducks: {type: integer, default: 3}}
---
apiVersion: example.com/v1
kind: Pond
metadata: {name: park}
`))
	pond := stored[1]
	fmt.Println(pond.GetNamespace(), pond.GetName(), pond.Object["ducks"])
	// Output: default park 3
}

func ExampleUser() {
	t := new(test)
	defer t.end()

	s := servertest.Run(t)
	jane := servertest.User(t, s, servertest.Account{
		Name:      "jane",
		Namespace: "default",
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
		},
	})
	client := kubernetes.NewForConfigOrDie(jane).CoreV1()
	_, err := client.Pods("default").List(context.Background(), metav1.ListOptions{})
	fmt.Println("pods:", err)
	_, err = client.Secrets("default").List(context.Background(), metav1.ListOptions{})
	fmt.Println("secrets: forbidden:", apierrors.IsForbidden(err))
	// Output:
	// pods: <nil>
	// secrets: forbidden: true
}

// test is a [servertest.TB] of a test framework other than package testing.
type test struct{ cleanups []func() }

func (t *test) Helper()                           {}
func (t *test) Cleanup(f func())                  { t.cleanups = append(t.cleanups, f) }
func (t *test) Errorf(format string, args ...any) { fmt.Printf(format+"\n", args...) }
func (t *test) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

// end calls the functions for the end of the test, the last one first.
func (t *test) end() {
	for i := len(t.cleanups) - 1; i >= 0; i-- {
		t.cleanups[i]()
	}
}

// The first update of anything by this client meets a conflict, and the client has to try again.
func ExampleFault() {
	t := new(test)
	defer t.end()

	s := servertest.Run(t, servertest.WithoutControllers)
	f := servertest.Fault(t, s, fault.Rule{UserAgent: "painter", Verb: "update", Times: 1},
		fault.Conflict())
	config := servertest.As(s.RESTConfig(), "painter")
	ctx, maps := context.Background(), kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	settings := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}}
	if _, err := maps.Create(ctx, settings, metav1.CreateOptions{}); err != nil {
		t.Fatalf("create: %v", err)
	}
	attempts := 0
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		attempts++
		found, err := maps.Get(ctx, "settings", metav1.GetOptions{})
		if err != nil {
			return err
		}
		found.Data = map[string]string{"color": "green"}
		_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		return err
	})
	fmt.Println(attempts, "attempts:", err)
	for _, hit := range f.Hits() {
		fmt.Println(hit)
	}
	// Output:
	// 2 attempts: <nil>
	// update /api/v1/namespaces/default/configmaps/settings by kubernetes-super-admin
}
