// Package tokentracking keeps the config map that says since when the API server has recorded the
// use of service account tokens in secrets (KEP-2799). Programs that delete unused secrets read it.
package tokentracking

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	name     = "kube-apiserver-legacy-service-account-token-tracking"
	sinceKey = "since"
)

// ConfigMap returns the config map as it is on the first day.
func ConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
		Data:       map[string]string{sinceKey: time.Now().UTC().Format(time.DateOnly)},
	}
}

// Ensure creates the config map, or mends one that has no date.
func Ensure(ctx context.Context, client kubernetes.Interface) error {
	maps := client.CoreV1().ConfigMaps(metav1.NamespaceSystem)
	found, err := maps.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		_, err = maps.Create(ctx, ConfigMap(), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			err = nil
		}
	case err == nil && !valid(found):
		found.Data = ConfigMap().Data
		_, err = maps.Update(ctx, found, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("config map %s: %w", name, err)
	}
	return nil
}

// Since returns the first day on which the use of tokens has been recorded from its beginning.
func Since(ctx context.Context, client kubernetes.Interface) (time.Time, error) {
	found, err := client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, name,
		metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("config map %s: %w", name, err)
	}
	began, err := since(found)
	if err != nil {
		return time.Time{}, fmt.Errorf("config map %s: %w", name, err)
	}
	return began.AddDate(0, 0, 1), nil
}

func since(m *corev1.ConfigMap) (time.Time, error) {
	return time.Parse(time.DateOnly, m.Data[sinceKey])
}

func valid(m *corev1.ConfigMap) bool {
	_, err := since(m)
	return err == nil
}
