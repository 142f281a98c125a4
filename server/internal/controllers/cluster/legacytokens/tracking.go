package legacytokens

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// The config map that says since when the API server has recorded the use of service account tokens
// in secrets. Programs that delete unused secrets read it.
const (
	trackingName = "kube-apiserver-legacy-service-account-token-tracking"
	sinceKey     = "since"
)

// Tracking returns the config map of a cluster on its first day.
func Tracking() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: trackingName},
		Data:       map[string]string{sinceKey: time.Now().UTC().Format(time.DateOnly)},
	}
}

// EnsureTracking creates the config map, or mends one that has no date.
func EnsureTracking(ctx context.Context, client kubernetes.Interface) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	found, err := maps.Get(ctx, trackingName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, Tracking(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	} else if err == nil {
		if _, invalid := trackingDay(found); invalid != nil {
			found.Data = Tracking().Data
			_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("config map %s: %w", trackingName, err)
	}
	return nil
}

// trackedSince returns the first day on which every use of a token has been recorded.
func trackedSince(ctx context.Context, client kubernetes.Interface) (time.Time, error) {
	found, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, trackingName,
		metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("config map %s: %w", trackingName, err)
	}
	began, err := trackingDay(found)
	if err != nil {
		return time.Time{}, fmt.Errorf("config map %s: %w", trackingName, err)
	}
	return began.AddDate(0, 0, 1), nil
}

func trackingDay(m *corev1.ConfigMap) (time.Time, error) {
	return time.Parse(time.DateOnly, m.Data[sinceKey])
}
