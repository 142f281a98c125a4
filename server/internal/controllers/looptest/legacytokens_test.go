package looptest

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/legacytokens"
	"github.com/kinproc/kinproc/server/internal/controllers/cluster/tokensecrets"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestUnusedLegacyTokens lets years pass for four secrets, of which one was made for a
// ServiceAccount and is not used.
func TestUnusedLegacyTokens(t *testing.T) {
	t.Parallel()
	_, client := workloadtest.Run(t, []string{tokensecrets.Name})
	core := client.CoreV1()
	secrets := core.Secrets(workloadtest.Namespace)
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	for _, name := range []string{"unused", "mounted", "recent"} {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
	}
	workloadtest.Must(core.ServiceAccounts(workloadtest.Namespace).Create(t.Context(), account,
		metav1.CreateOptions{}))(t)
	year := 366 * 24 * time.Hour
	for name, labels := range map[string]map[string]string{
		"unused": nil, "mounted": nil, "by-hand": nil,
		"recent": {serviceaccount.LastUsed: time.Now().Add(2 * year).Format(time.DateOnly)},
	} {
		workloadtest.Must(secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Labels: labels,
				Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"},
			},
			Type: corev1.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{}))(t)
	}
	workloadtest.Must(core.Pods(workloadtest.Namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: "mounted"},
			}}},
		},
	}, metav1.CreateOptions{}))(t)

	legacyTokensRun(t, client, time.Now().Add(2*year))
	invalid := legacyTokensAwait(t, client, "a secret is invalid", func(list []corev1.Secret) bool {
		return slices.ContainsFunc(list, legacyTokenIsInvalid)
	})
	for _, s := range invalid {
		if legacyTokenIsInvalid(s) != (s.Name == "unused") {
			t.Errorf("secret %s has the labels %v", s.Name, s.Labels)
		}
	}
	legacyTokensRun(t, client, time.Now().Add(3*year))
	left := legacyTokensAwait(t, client, "a secret is deleted", func(list []corev1.Secret) bool {
		return len(list) < len(invalid)
	})
	if len(left) != 3 || slices.ContainsFunc(left, func(s corev1.Secret) bool {
		return s.Name == "unused"
	}) {
		t.Errorf("unexpected secrets are left: %v", left)
	}
}

func legacyTokenIsInvalid(s corev1.Secret) bool {
	return s.Labels[serviceaccount.InvalidSince] != ""
}

// legacyTokensRun runs the controller at a given time until the test ends or stop is called.
func legacyTokensRun(t *testing.T, client kubernetes.Interface, now time.Time) (stop func()) {
	t.Helper()
	d, _ := workloadtest.Dependencies(client)
	return workloadtest.Start(t, d, legacytokens.Loop(func() time.Time { return now }))
}

// TestLegacyTokensRestart changes secrets that are invalid while the controller does not run, and
// before it learns of the change.
func TestLegacyTokensRestart(t *testing.T) {
	t.Parallel()
	s, client := workloadtest.Run(t, nil)
	core := client.CoreV1()
	secrets := core.Secrets(workloadtest.Namespace)
	names := []string{"used", "mounted", "unlabelled", "unused"}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}
	for _, name := range names {
		account.Secrets = append(account.Secrets, corev1.ObjectReference{Name: name})
		workloadtest.Must(secrets.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: map[string]string{corev1.ServiceAccountNameKey: "robot"},
			},
			Type: corev1.SecretTypeServiceAccountToken,
		}, metav1.CreateOptions{}))(t)
	}
	workloadtest.Must(core.ServiceAccounts(workloadtest.Namespace).Create(t.Context(), account,
		metav1.CreateOptions{}))(t)
	later := func(years int) time.Time {
		return time.Now().Add(time.Duration(years) * 366 * 24 * time.Hour)
	}
	// label sets a label of a secret to a day, or removes it.
	label := func(name, label string, day *time.Time) {
		t.Helper()
		value := "null"
		if day != nil {
			value = strconv.Quote(day.Format(time.DateOnly))
		}
		workloadtest.Must(secrets.Patch(t.Context(), name, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, value),
			metav1.PatchOptions{}))(t)
	}
	stop := legacyTokensRun(t, client, later(2))
	legacyTokensAwait(t, client, "all secrets are invalid", func(list []corev1.Secret) bool {
		return len(list) == len(names) && !slices.ContainsFunc(list, func(s corev1.Secret) bool {
			return !legacyTokenIsInvalid(s)
		})
	})
	stop()
	label("used", serviceaccount.LastUsed, new(later(3)))
	label("unlabelled", serviceaccount.InvalidSince, nil)
	workloadtest.Must(core.Pods(workloadtest.Namespace).Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				Secret: &corev1.SecretVolumeSource{SecretName: "mounted"},
			}}},
		},
	}, metav1.CreateOptions{}))(t)

	stop = legacyTokensRun(t, client, later(3))
	legacyTokensAwait(t, client, "one secret is deleted, another one is invalid again",
		func(list []corev1.Secret) bool {
			return len(list) == 3 && !slices.ContainsFunc(list, func(s corev1.Secret) bool {
				return s.Name == "unused" || !legacyTokenIsInvalid(s)
			})
		})
	stop()

	// Somebody uses a secret that the controller believes to be unused.
	var deletions atomic.Int32
	config := s.RESTConfig()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return workloadtest.RoundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := rt.RoundTrip(r)
			if r.Method == http.MethodDelete {
				deletions.Add(1)
			}
			return response, err
		})
	})
	counting, err := kubernetes.NewForConfig(config)
	workloadtest.OK(t, err)
	d, _ := workloadtest.Dependencies(counting)
	informer := d.Informer(&corev1.Secret{})
	valve := workloadtest.Valve(t, informer)
	d.Informers.StartWithContext(t.Context())
	if !cache.WaitFor(t.Context(), "", informer.HasSyncedChecker()) {
		t.Fatal("the informer did not sync")
	}
	valve.Lock()
	release := sync.OnceFunc(valve.Unlock)
	defer release()
	label("unlabelled", serviceaccount.LastUsed, new(later(5)))
	workloadtest.Start(t, d, legacytokens.Loop(func() time.Time { return later(5) }))
	workloadtest.Await(t, "two deletions",
		func(context.Context) (int32, error) { return deletions.Load(), nil },
		func(n int32) bool { return n == 2 })
	legacyTokensAwait(t, client, "one of them is refused", func(list []corev1.Secret) bool {
		return len(list) == 2 && !slices.ContainsFunc(list, func(s corev1.Secret) bool {
			return s.Name == "used"
		})
	})
}

func legacyTokensAwait(
	t *testing.T, client kubernetes.Interface, what string, wanted func([]corev1.Secret) bool,
) []corev1.Secret {
	t.Helper()
	return workloadtest.Await(t, what, func(ctx context.Context) ([]corev1.Secret, error) {
		list, err := client.CoreV1().Secrets(workloadtest.Namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		return list.Items, nil
	}, wanted)
}
