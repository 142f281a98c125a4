package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/documents"
	"github.com/kinproc/kinproc/server/internal/admission/plugin"
)

// imagePolicy (ImagePolicyWebhook) asks a webhook backend whether the images of a pod may run. It
// is off by default and requires a configuration.
type imagePolicy struct {
	*admission.Handler
	backend *webhook.GenericWebhook
	answers *cache.LRUExpireCache
	config  imagePolicyConfig
}

// imagePolicyConfig is the imagePolicy section of the configuration. In its durations, 0 stands for
// the default and -1 for zero.
type imagePolicyConfig struct {
	// KubeConfigFile is a kubeconfig file for the backend.
	KubeConfigFile string `json:"kubeConfigFile"`
	// AllowTTL and DenyTTL are how long positive and negative answers are cached, in seconds: more
	// than 1 second and at most 30 minutes. They default to 5 minutes and 30 seconds.
	AllowTTL time.Duration `json:"allowTTL"`
	DenyTTL  time.Duration `json:"denyTTL"`
	// RetryBackoff is the initial delay before the backend is asked again, in milliseconds: at most
	// 5 minutes. It defaults to 500.
	RetryBackoff time.Duration `json:"retryBackoff"`
	// DefaultAllow admits pods if the backend does not answer.
	DefaultAllow bool `json:"defaultAllow"`
}

const (
	rememberedAnswers = 1024
	// imagePolicyAudit is the prefix of the keys of audit annotations. Pod annotations whose keys
	// contain imagePolicyDomain are sent to the backend.
	imagePolicyAudit  = "imagepolicywebhook.image-policy.k8s.io/"
	imagePolicyDomain = ".image-policy.k8s.io/"
)

func newImagePolicy(config io.Reader) (admission.Interface, error) {
	if config == nil {
		return nil, errors.New("ImagePolicyWebhook requires a configuration: " +
			"name its file with --admission-control-config-file")
	}
	var file struct {
		ImagePolicy imagePolicyConfig `json:"imagePolicy"`
	}
	if err := documents.Read(config, &file); err != nil {
		return nil, fmt.Errorf("ImagePolicyWebhook configuration: %w", err)
	}
	c := file.ImagePolicy
	err := errors.Join(
		setTime(&c.AllowTTL, "allowTTL", time.Second, time.Second, 30*time.Minute, 5*time.Minute),
		setTime(&c.DenyTTL, "denyTTL", time.Second, time.Second, 30*time.Minute, 30*time.Second),
		setTime(&c.RetryBackoff, "retryBackoff", time.Millisecond, time.Nanosecond, 5*time.Minute,
			500*time.Millisecond),
	)
	if err != nil {
		return nil, fmt.Errorf("ImagePolicyWebhook configuration: %w", err)
	}
	connection, err := webhook.LoadKubeconfig(c.KubeConfigFile, nil)
	if err != nil {
		return nil, fmt.Errorf("ImagePolicyWebhook configuration: kubeConfigFile: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := imagepolicyv1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	backend, err := webhook.NewGenericWebhook(scheme, serializer.NewCodecFactory(scheme), connection,
		[]schema.GroupVersion{imagepolicyv1alpha1.SchemeGroupVersion},
		webhook.DefaultRetryBackoffWithInitialDelay(c.RetryBackoff))
	if err != nil {
		return nil, fmt.Errorf("ImagePolicyWebhook backend: %w", err)
	}
	return &imagePolicy{
		Handler: admission.NewHandler(admission.Create, admission.Update),
		backend: backend,
		answers: cache.NewLRUExpireCache(rememberedAnswers),
		config:  c,
	}, nil
}

// setTime converts value from a number of units to a duration, which must be more than least and at
// most most. Zero becomes otherwise, and -1 becomes zero.
func setTime(value *time.Duration, name string, unit, least, most, otherwise time.Duration) error {
	switch n := *value; n {
	case -1:
		*value = 0
	case 0:
		*value = otherwise
	default:
		if *value = n * unit; *value <= least || *value > most {
			return fmt.Errorf("%s %d: must be more than %s and at most %s", name, n, least, most)
		}
	}
	return nil
}

func (p *imagePolicy) Validate(
	ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	ephemeral := plugin.Is(a, pods, "ephemeralcontainers")
	if !ephemeral && !plugin.Is(a, pods, "") {
		return nil
	}
	pod, err := plugin.Cast[*corev1.Pod](a.GetObject())
	if err != nil {
		return err
	}
	review := &imagepolicyv1alpha1.ImageReview{Spec: imagepolicyv1alpha1.ImageReviewSpec{
		Namespace:   a.GetNamespace(),
		Annotations: map[string]string{},
	}}
	add := func(image string) {
		review.Spec.Containers = append(review.Spec.Containers,
			imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	if ephemeral {
		for _, c := range pod.Spec.EphemeralContainers {
			add(c.Image)
		}
	} else {
		for _, c := range pod.Spec.Containers {
			add(c.Image)
		}
		for _, c := range pod.Spec.InitContainers {
			add(c.Image)
		}
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, imagePolicyDomain) {
			review.Spec.Annotations[key] = value
		}
	}
	if err := p.review(ctx, review); err != nil {
		if !p.config.DefaultAllow {
			return plugin.Forbid(a, "image policy: %w", err)
		}
		return a.AddAnnotation(imagePolicyAudit+"failed-open", "true")
	}
	for key, value := range review.Status.AuditAnnotations {
		if err := a.AddAnnotation(imagePolicyAudit+key, value); err != nil {
			return err
		}
	}
	switch status := review.Status; {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return plugin.Forbid(a, "one or more images were denied: %s", status.Reason)
	}
	return plugin.Forbid(a, "one or more images were denied")
}

// review asks the backend to fill in the status, unless its answer is cached.
func (p *imagePolicy) review(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) error {
	key, err := json.Marshal(review.Spec)
	if err != nil {
		return err
	}
	if status, ok := p.answers.Get(string(key)); ok {
		review.Status = status.(imagepolicyv1alpha1.ImageReviewStatus)
		return nil
	}
	result := p.backend.WithExponentialBackoff(ctx, func() rest.Result {
		return p.backend.RestClient.Post().Body(review).Do(ctx)
	})
	if err := result.Error(); err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	if err := result.Into(review); err != nil {
		return fmt.Errorf("backend: %w", err)
	}
	remember := p.config.DenyTTL
	if review.Status.Allowed {
		remember = p.config.AllowTTL
	}
	p.answers.Add(string(key), review.Status, remember)
	return nil
}
