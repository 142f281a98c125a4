package explore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"

	"github.com/kinproc/kinproc/server/servertest/explore"
)

// copier creates the config maps "copy" and "done", and one named by the UID of the original, when
// there is a config map "original". If careless is true, it takes "copy" for a proof of the others.
func copier(careless bool) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, config *rest.Config) error {
		all := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
		create := func(name string) error {
			_, err := all.Create(ctx, named(name), metav1.CreateOptions{})
			return err
		}
		w, err := all.Watch(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		defer w.Stop()
		for e := range w.ResultChan() {
			if o, ok := e.Object.(*corev1.ConfigMap); !ok || o.Name != "original" {
				continue
			}
			err := create("copy")
			if apierrors.IsAlreadyExists(err) && careless {
				continue
			}
			for attempts := 0; attempts < 3; attempts++ {
				err = errors.Join(ignoreExists(create("copy")), ignoreExists(create("done")),
					ignoreExists(create("of-"+string(e.Object.(*corev1.ConfigMap).UID))))
				if err == nil {
					break
				}
			}
			if err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	}
}

// sizer makes a secret "disk" of the size that the config map "original" asks for. It deletes a
// disk that is too large.
func sizer(ctx context.Context, config *rest.Config) error {
	client := kubernetes.NewForConfigOrDie(config).CoreV1()
	maps, secrets := client.ConfigMaps("default"), client.Secrets("default")
	for {
		originals, err := maps.List(ctx, only("original", "0"))
		if err != nil {
			return err
		}
		disks, err := secrets.List(ctx, only("disk", "0"))
		if err != nil {
			return err
		}
		for _, o := range originals.Items {
			disk := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "disk"}, StringData: o.Data}
			switch {
			case len(disks.Items) == 0:
				_, err = secrets.Create(ctx, disk, metav1.CreateOptions{})
				err = ignoreExists(err)
			case string(disks.Items[0].Data["size"]) < o.Data["size"]:
				_, err = secrets.Update(ctx, disk, metav1.UpdateOptions{})
			case string(disks.Items[0].Data["size"]) > o.Data["size"]:
				err = secrets.Delete(ctx, disk.Name, metav1.DeleteOptions{})
			}
			if err != nil {
				return err
			}
		}
		w, err := maps.Watch(ctx, only("original", originals.ResourceVersion))
		if err != nil {
			return err
		}
		<-w.ResultChan()
		w.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// A controller may see the past of one resource and the present of another, if they are in
// different caches.
func TestStaleCacheOfOneResource(t *testing.T) {
	t.Parallel()
	findings := explore.Find(t, explore.Test{
		Controller: sizer,
		Act: func(t explore.TB, config *rest.Config) {
			maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
			original := named("original")
			original.Data = map[string]string{"size": "1"}
			_, err := maps.Create(t.Context(), original, metav1.CreateOptions{})
			t.Idle()
			original.Data["size"] = "2"
			_, err2 := maps.Update(t.Context(), original, metav1.UpdateOptions{})
			if err := errors.Join(err, err2); err != nil {
				t.Fatalf("%v", err)
			}
		},
		Max: 20,
	})
	const name = "stale-restart-after-update-secrets-disk-in-act-2-as-after-create-configmaps-original-only"
	for _, f := range findings {
		if f.Name == name && strings.Contains(f.Report, "secrets default/disk was deleted once") {
			return
		}
	}
	t.Errorf("%s was not found: %v", name, findings)
}

// leading runs a controller while it is the leader. The lock is an annotation of a ConfigMap, as in
// older versions of client-go, and does not expire.
func leading(
	controller func(context.Context, *rest.Config) error,
) func(context.Context, *rest.Config) error {
	return func(ctx context.Context, config *rest.Config) error {
		maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
		lock := named("leader")
		lock.Annotations = map[string]string{
			resourcelock.LeaderElectionRecordAnnotationKey: rand.Text(),
		}
		const period = 20 * time.Millisecond
		lead := func(ctx context.Context) (bool, error) {
			_, err := maps.Create(ctx, lock, metav1.CreateOptions{})
			return err == nil, ignoreExists(err)
		}
		if err := wait.PollUntilContextCancel(ctx, period, true, lead); err != nil {
			return err
		}
		renewing, stop := context.WithCancel(ctx)
		var renewals sync.WaitGroup
		renewals.Go(func() {
			wait.UntilWithContext(renewing, func(ctx context.Context) {
				_, _ = maps.Update(ctx, lock, metav1.UpdateOptions{}) // or next time
			}, period)
		})
		defer func() { stop(); renewals.Wait() }()
		return controller(ctx, config)
	}
}

func ignoreExists(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func named(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// marker marks the config map "original", and repeats that until it sees the mark.
func marker(ctx context.Context, config *rest.Config) error {
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	originals, err := maps.List(ctx, only("original", "0"))
	if err != nil {
		return err
	}
	w, err := maps.Watch(ctx, only("original", originals.ResourceVersion))
	if err != nil {
		return err
	}
	defer w.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	var cached *corev1.ConfigMap
	for _, o := range originals.Items {
		cached = &o
	}
	for {
		select {
		case e := <-w.ResultChan():
			cached, _ = e.Object.(*corev1.ConfigMap)
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
		if cached != nil && cached.Data["marked"] == "" {
			marked := cached.DeepCopy()
			marked.Data = map[string]string{"marked": "true"}
			_, _ = maps.Update(ctx, marked, metav1.UpdateOptions{}) // or again
		}
	}
}

// forBusy is a patience for a busy machine, on which a run may take longer than the default. Only
// what never becomes right takes as long.
const forBusy = 30 * time.Second

// A controller that sees an object late sees its own write to that object nevertheless.
func TestLateEventsEnd(t *testing.T) {
	t.Parallel()
	test := copying(true)
	test.Controller, test.Patience = marker, forBusy
	explore.Run(t, test)
}

// only returns options for one object, from the server's cache.
func only(name, version string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: "metadata.name=" + name, ResourceVersion: version}
}

func copying(careless bool) explore.Test {
	return explore.Test{
		Controller: copier(careless),
		Act: func(t explore.TB, config *rest.Config) {
			_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").
				Create(t.Context(), named("original"), metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("%v", err)
			}
		},
	}
}

// A finding that does not happen again says so.
func TestSecondTry(t *testing.T) {
	t.Parallel()
	test := copying(true)
	var starts atomic.Int32
	test.Controller = func(ctx context.Context, config *rest.Config) error {
		// The fourth start is the one after the crash: before it come two undisturbed runs.
		return copier(starts.Add(1) == 4)(ctx, config)
	}
	test.Max = 1
	findings := explore.Find(t, test)
	if len(findings) != 1 || !strings.Contains(findings[0].Report, "A second try succeeded") {
		t.Errorf("the findings do not tell of the second try: %v", findings)
	}
}

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	os.Exit(m.Run())
}

// Outside of bubbles, the time without a request tells that the system is idle.
func TestOutsideOfBubbles(t *testing.T) {
	t.Parallel()
	t.Run("careless", findCareless)
	t.Run("careful", func(t *testing.T) {
		test := copying(false)
		test.Patience = forBusy
		explore.Run(t, test)
	})
	t.Run("leading", func(t *testing.T) {
		test := copying(false)
		test.Controller, test.Max, test.Patience = leading(test.Controller), 4, forBusy
		explore.Run(t, test)
	})
}

func findCareless(t *testing.T) {
	findings := explore.Find(t, copying(true))
	for _, f := range findings {
		t.Log(f.Report)
	}
	crashed := slices.IndexFunc(findings, func(f explore.Finding) bool {
		return f.Name == "crash-after-create-configmaps-copy"
	})
	if crashed < 0 {
		t.Fatal("a crash between the two config maps was not found")
	}
	report := findings[crashed].Report
	for _, part := range []string{"- configmaps default/done", "explore_test.go:"} {
		if !strings.Contains(report, part) {
			t.Errorf("the report has no %q", part)
		}
	}
}
