package legacytokens_test

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kinproc/kinproc/server/internal/auth/serviceaccount"
	"github.com/kinproc/kinproc/server/internal/controllers/legacytokens"
	"github.com/kinproc/kinproc/server/internal/controllers/tokensecrets"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
)

// TestUnusedTokens lets years pass for four secrets, of which one was made for a ServiceAccount and
// is not used.
func TestUnusedTokens(t *testing.T) {
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

	run(t, client, time.Now().Add(2*year))
	invalid := awaitSecrets(t, client, "a secret is invalid", func(list []corev1.Secret) bool {
		return slices.ContainsFunc(list, isInvalid)
	})
	for _, s := range invalid {
		if isInvalid(s) != (s.Name == "unused") {
			t.Errorf("secret %s has the labels %v", s.Name, s.Labels)
		}
	}
	run(t, client, time.Now().Add(3*year))
	left := awaitSecrets(t, client, "a secret is deleted", func(list []corev1.Secret) bool {
		return len(list) < len(invalid)
	})
	if len(left) != 3 || slices.ContainsFunc(left, func(s corev1.Secret) bool {
		return s.Name == "unused"
	}) {
		t.Errorf("unexpected secrets are left: %v", left)
	}
}

func isInvalid(s corev1.Secret) bool { return s.Labels[serviceaccount.InvalidSince] != "" }

// run runs the controller at a given time until the test ends.
func run(t *testing.T, client kubernetes.Interface, now time.Time) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(client, 0)
	ended := make(chan error, 1)
	go func() {
		ended <- legacytokens.New(legacytokens.Dependencies{
			Client: client, Informers: factory, Now: func() time.Time { return now },
		}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		factory.Shutdown()
	})
}

func awaitSecrets(
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
