package explore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server/servertest/explore"
)

// repairer creates the config maps "copy" and "done". Where it finds a copy, it notes a repair
// before it creates what lacks. It is wrong: it takes a note for a proof that the repair has been
// done.
func repairer(ctx context.Context, config *rest.Config) error {
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	create := func(name string) error {
		_, err := maps.Create(ctx, named(name), metav1.CreateOptions{})
		return err
	}
	return inCache(ctx, config, func(*corev1.ConfigMap) error {
		err := create("copy")
		if !apierrors.IsAlreadyExists(err) {
			return errors.Join(err, create("done"))
		}
		if err := create("repair"); err != nil {
			return ignoreExists(err)
		}
		return errors.Join(ignoreExists(create("done")),
			maps.Delete(ctx, "repair", metav1.DeleteOptions{}))
	})
}

// A crash during the recovery from another one is tried if somebody asks for it.
func TestPairs(t *testing.T) {
	t.Parallel()
	findings := explore.Find(t, explore.Test{
		InBubbles: true, Controller: repairer, Act: copying(false).Act, Pairs: true,
	})
	wantNone(t, findings, "crash-after-create-configmaps-copy")
	wantFinding(t, findings,
		"crash-after-create-configmaps-copy-then-crash-after-create-configmaps-repair",
		"While it recovered, it crashed right after another write, and was restarted:\n"+
			"create configmaps default/repair, at explore/pairs_test.go:")
}

// Events are held back while a user waits for something else, if somebody asks for that. Then, what
// waits for the controller does so in vain.
func TestHoldWhileWaiting(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		test := explore.Test{
			InBubbles: true, Controller: copier(false), HoldWhileWaiting: hold, Max: 8,
			Act: func(t explore.TB, config *rest.Config) {
				maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
				_, err := maps.Create(t.Context(), named("original"), metav1.CreateOptions{})
				time.Sleep(5 * time.Minute) // five times as long as it takes to be idle
				_, err2 := maps.Get(t.Context(), "copy", metav1.GetOptions{})
				if err := errors.Join(err, err2); err != nil {
					t.Fatalf("%v", err)
				}
			},
		}
		findings := explore.Find(t, test)
		for _, name := range []string{"missed-create-configmaps-original", "delayed-configmaps"} {
			if hold {
				wantFinding(t, findings, name, `configmaps "copy" not found`)
			} else {
				wantNone(t, findings, name)
			}
		}
	}
}
