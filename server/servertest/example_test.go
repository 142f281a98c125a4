package servertest_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

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
