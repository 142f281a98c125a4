package explore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/servertest/explore"
)

// wantFinding fails the test unless a disturbance is found, with a text in its report.
func wantFinding(t *testing.T, findings []explore.Finding, name, text string) {
	t.Helper()
	for _, f := range findings {
		if f.Name == name {
			if !strings.Contains(f.Report, text) {
				t.Errorf("the report of %s has no %q:\n%s", name, text, f.Report)
			}
			return
		}
	}
	t.Errorf("%s was not found", name)
	for _, f := range findings {
		t.Log(f.Report)
	}
}

// wantNone fails the test if a disturbance is found.
func wantNone(t *testing.T, findings []explore.Finding, name string) {
	t.Helper()
	for _, f := range findings {
		if f.Name == name {
			t.Errorf("a finding:\n%s", f.Report)
		}
	}
}

// inCache calls f with each config map of the name "original", as a cache shows it.
func inCache(
	ctx context.Context, config *rest.Config, f func(original *corev1.ConfigMap) error,
) error {
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	list, err := maps.List(ctx, only("original", "0"))
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := f(&list.Items[i]); err != nil {
			return err
		}
	}
	w, err := maps.Watch(ctx, only("original", list.ResourceVersion))
	if err != nil {
		return err
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		if original, ok := e.Object.(*corev1.ConfigMap); ok {
			if err := f(original); err != nil {
				return err
			}
		}
	}
	return nil
}

// chronicler creates a config map for each version of the original that it sees.
func chronicler(ctx context.Context, config *rest.Config) error {
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	return inCache(ctx, config, func(original *corev1.ConfigMap) error {
		_, err := maps.Create(ctx, named("version-"+original.Data["version"]), metav1.CreateOptions{})
		return ignoreExists(err)
	})
}

// versions creates the original with a version, and changes it in two more acts. It calls changed
// after each change.
func versions(t explore.TB, config *rest.Config, changed func(version string)) {
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
	original := named("original")
	original.Data = map[string]string{"version": "1"}
	_, err := maps.Create(t.Context(), original, metav1.CreateOptions{})
	for _, version := range []string{"2", "3"} {
		t.Idle()
		if err == nil {
			original.Data["version"] = version
			_, err = maps.Update(t.Context(), original, metav1.UpdateOptions{})
			changed(version)
		}
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
}

// A controller that is away, or behind, from a change in one act until one in the next act sees
// only the second.
func TestAcrossActs(t *testing.T) {
	t.Parallel()
	findings := explore.Find(t, explore.Test{
		InBubbles: true, Controller: chronicler,
		Act: func(t explore.TB, config *rest.Config) { versions(t, config, func(string) {}) },
	})
	for _, name := range []string{
		"missed-update-configmaps-original-in-act-2-until-update-configmaps-original-in-act-3",
		"coalesced-configmaps-original-in-acts-2-and-3",
	} {
		wantFinding(t, findings, name, "- configmaps default/version-2")
	}
	wantNone(t, findings, "missed-update-configmaps-original-in-act-2")
	wantNone(t, findings, "coalesced-configmaps-original")
}

// A user who waits for the controller in one of the acts does not wait in vain.
func TestAcrossActsWaits(t *testing.T) {
	t.Parallel()
	waitFor := func(t explore.TB, config *rest.Config, name string) {
		maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
		for {
			_, err := maps.Get(t.Context(), name, metav1.GetOptions{})
			if err == nil {
				return
			}
			if !apierrors.IsNotFound(err) {
				t.Fatalf("%v", err)
			}
			time.Sleep(time.Second)
		}
	}
	const name = "coalesced-configmaps-original-in-acts-2-and-3"
	const missed = "missed-update-configmaps-original-in-act-2-until-update-configmaps-original-in-act-3"
	find := func(waitsFor ...string) []explore.Finding {
		return explore.Find(t, explore.Test{
			InBubbles: true, Controller: chronicler,
			Act: func(t explore.TB, config *rest.Config) {
				versions(t, config, func(version string) {
					if slices.Contains(waitsFor, version) {
						waitFor(t, config, "version-"+version)
					}
				})
			},
		})
	}
	findings := find("3")
	wantFinding(t, findings, name, "- configmaps default/version-2")
	for _, f := range findings {
		if f.Name == name && strings.Contains(f.Report, "steps failed") {
			t.Error(f.Report)
		}
	}
	findings = find("2", "3")
	wantNone(t, findings, name)
	wantNone(t, findings, missed)
}

// Events of other resources are not late, in the second try either.
func TestDelaysOneResource(t *testing.T) {
	t.Parallel()
	findings := explore.Find(t, explore.Test{
		InBubbles: true,
		Controller: func(ctx context.Context, config *rest.Config) error {
			c := kubernetes.NewForConfigOrDie(config).CoreV1()
			maps, err := c.ConfigMaps("default").Watch(ctx, only("original", ""))
			if err != nil {
				return err
			}
			defer maps.Stop()
			secrets, err := c.Secrets("default").Watch(ctx, only("original", ""))
			if err != nil {
				return err
			}
			defer secrets.Stop()
			create := func(name string) error {
				_, err := c.Services("default").Create(ctx, &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: name},
					Spec:       corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
				}, metav1.CreateOptions{})
				return ignoreExists(err)
			}
			for seen := false; ; {
				select {
				case <-maps.ResultChan():
					seen = true
				case e := <-secrets.ResultChan():
					if !seen {
						err = create("secret-first")
					}
					s, ok := e.Object.(*corev1.Secret)
					if ok && time.Since(s.CreationTimestamp.Time) > 30*time.Second {
						err = errors.Join(err, create("secret-late"))
					}
				case <-ctx.Done():
					return nil
				}
				if err == nil && seen {
					err = create("map")
				}
				if err != nil {
					return err
				}
			}
		},
		Act: func(t explore.TB, config *rest.Config) {
			c := kubernetes.NewForConfigOrDie(config).CoreV1()
			_, err := c.ConfigMaps("default").Create(t.Context(), named("original"), metav1.CreateOptions{})
			time.Sleep(time.Second)
			_, err2 := c.Secrets("default").Create(t.Context(), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: "original"},
			}, metav1.CreateOptions{})
			if err := errors.Join(err, err2); err != nil {
				t.Fatalf("%v", err)
			}
		},
	})
	wantFinding(t, findings, "delayed-configmaps", "A second try had the same problems.")
}

// A write without a resource version can overwrite what somebody else has changed, a patch does
// not, and a write with a resource version is refused.
func TestOverwrites(t *testing.T) {
	t.Parallel()
	const name = "-configmaps-original"
	controller := func(blind bool) func(context.Context, *rest.Config) error {
		return func(ctx context.Context, config *rest.Config) error {
			maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
			return inCache(ctx, config, func(original *corev1.ConfigMap) error {
				if original.Data["seen"] == "yes" {
					return nil
				}
				if original.Data["seen"] = "yes"; blind {
					original.ResourceVersion = ""
				}
				_, err := maps.Update(ctx, original, metav1.UpdateOptions{})
				if apierrors.IsConflict(err) {
					return nil // the next event comes
				}
				return err
			})
		}
	}
	act := func(t explore.TB, config *rest.Config) {
		original := named("original")
		original.Data = map[string]string{"version": "1"}
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default").
			Create(t.Context(), original, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("%v", err)
		}
	}
	findings := explore.Find(t, explore.Test{
		InBubbles: true, Controller: controller(true), Act: act,
	})
	wantFinding(t, findings, "overwrite-at-update"+name, "overwrote a change")
	wantFinding(t, findings, "overwrite-at-update"+name, "default/original created by user (")
	wantFinding(t, findings, "overwrite-at-update"+name, "default/original updated by controller (")
	findings = explore.Find(t, explore.Test{
		InBubbles: true, Controller: controller(false), Act: act,
	})
	wantNone(t, findings, "conflict-at-update"+name)
	wantNone(t, findings, "overwrite-at-update"+name)
}

// What a controller has made itself must not be deleted because of a disturbance, even if it
// creates the object again.
func TestDeletesItsOwn(t *testing.T) {
	t.Parallel()
	findings := explore.Find(t, explore.Test{
		InBubbles: true,
		Controller: func(ctx context.Context, config *rest.Config) error {
			maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
			return inCache(ctx, config, func(*corev1.ConfigMap) error {
				err := maps.Delete(ctx, "copy", metav1.DeleteOptions{})
				if err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				_, err = maps.Create(ctx, named("copy"), metav1.CreateOptions{})
				return err
			})
		},
		Act: copying(false).Act,
	})
	const name = "crash-after-create-configmaps-copy"
	wantFinding(t, findings, name, "configmaps default/copy was deleted once (undisturbed: never)")
	wantFinding(t, findings, name, "A second try had the same problems.")
}

// A time to settle that is shorter than the pauses of a controller is made longer.
func TestSettleIsLearnt(t *testing.T) {
	t.Parallel()
	findings := explore.Find(t, explore.Test{
		InBubbles: true,
		Controller: func(ctx context.Context, config *rest.Config) error {
			maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
			return inCache(ctx, config, func(*corev1.ConfigMap) error {
				_, err := maps.Create(ctx, named("copy"), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil // it takes this for a proof of the next one
				}
				select {
				case <-time.After(90 * time.Second): // the default to settle is a minute
				case <-ctx.Done():
					return nil
				}
				_, err2 := maps.Create(ctx, named("done"), metav1.CreateOptions{})
				return errors.Join(err, err2)
			})
		},
		Act: copying(false).Act,
	})
	wantFinding(t, findings, "crash-after-create-configmaps-copy", "- configmaps default/done")
}

// A cache may lack what a control loop has written, and have everything else.
func TestStaleViewOfWhatOthersWrite(t *testing.T) {
	t.Parallel()
	controller := func(ctx context.Context, config *rest.Config) error {
		client := kubernetes.NewForConfigOrDie(config)
		slices := client.DiscoveryV1().EndpointSlices("default")
		ofWeb := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=web"}
		cached := ofWeb
		cached.ResourceVersion = "0"
		list, err := slices.List(ctx, cached)
		if err != nil {
			return err
		}
		exists := len(list.Items) > 0
		_, err = client.CoreV1().ConfigMaps("default").Get(ctx, "reached", metav1.GetOptions{})
		if reached := err == nil; reached && !exists {
			_, err = client.CoreV1().ConfigMaps("default").Create(ctx, named("lost"),
				metav1.CreateOptions{})
			if err != nil {
				return err
			}
		}
		ofWeb.ResourceVersion = list.ResourceVersion
		w, err := slices.Watch(ctx, ofWeb)
		if err != nil {
			return err
		}
		defer w.Stop()
		for {
			if exists {
				_, err := client.CoreV1().ConfigMaps("default").Create(ctx, named("reached"),
					metav1.CreateOptions{})
				if ignoreExists(err) != nil {
					return err
				}
			}
			e, ok := <-w.ResultChan()
			if !ok {
				return nil
			}
			_, exists = e.Object.(*discoveryv1.EndpointSlice)
		}
	}
	findings := explore.Find(t, explore.Test{
		InBubbles: true, Controller: controller,
		Options: []func(*server.Options){func(o *server.Options) { o.Controllers = []string{"*"} }},
		Act: func(t explore.TB, config *rest.Config) {
			_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Services("default").Create(
				t.Context(), &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: "web"},
					Spec: corev1.ServiceSpec{
						Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
					},
				}, metav1.CreateOptions{})
			if err != nil {
				t.Fatalf("%v", err)
			}
		},
	})
	wantFinding(t, findings,
		"stale-restart-after-create-configmaps-reached-as-before-last-change-of-endpointslices",
		"+ configmaps default/lost")
}
