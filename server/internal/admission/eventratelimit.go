package admission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"
)

// eventRateLimit (EventRateLimit) limits how fast events come in. Off by default; it cannot do without configuration.
type eventRateLimit struct {
	*admission.Handler
	limits []eventLimit
}

// eventLimit is a limit of the configuration eventratelimit.admission.k8s.io/v1alpha1, with the buckets that it fills.
type eventLimit struct {
	// Type is what has a bucket: Server, Namespace, User or SourceAndObject.
	Type  string `json:"type"`
	QPS   int32  `json:"qps"`
	Burst int32  `json:"burst"`
	// CacheSize is how many buckets there are; the least recently used one makes place.
	CacheSize int32 `json:"cacheSize"`

	buckets *lru.Cache
	making  *sync.Mutex
}

const defaultEventBuckets = 4096

func newEventRateLimit(config io.Reader) (admission.Interface, error) {
	p := &eventRateLimit{Handler: admission.NewHandler(admission.Create, admission.Update)}
	if config == nil {
		return nil, errors.New("EventRateLimit has no configuration: name its file with --admission-control-config-file")
	}
	var file struct {
		metav1.TypeMeta `json:",inline"`
		Limits          []eventLimit `json:"limits"`
	}
	if err := yaml.NewYAMLOrJSONDecoder(config, 4096).Decode(&file); err != nil && err != io.EOF {
		return nil, fmt.Errorf("configuration of EventRateLimit: %w", err)
	}
	var errs []error
	if file.APIVersion != "eventratelimit.admission.k8s.io/v1alpha1" || file.Kind != "Configuration" {
		errs = append(errs, fmt.Errorf("it is a %q of %q, not a Configuration of eventratelimit.admission.k8s.io/v1alpha1", file.Kind, file.APIVersion))
	}
	if len(file.Limits) == 0 {
		errs = append(errs, errors.New("limits: there must be one at least"))
	}
	for i, l := range file.Limits {
		switch l.Type {
		case "Server":
			l.CacheSize = 1
		case "Namespace", "User", "SourceAndObject":
		default:
			errs = append(errs, fmt.Errorf("limits[%d].type %q: must be Server, Namespace, User or SourceAndObject", i, l.Type))
		}
		if l.QPS <= 0 || l.Burst <= 0 || l.CacheSize < 0 {
			errs = append(errs, fmt.Errorf("limits[%d]: qps and burst must be positive, cacheSize must not be negative", i))
		}
		if l.CacheSize == 0 {
			l.CacheSize = defaultEventBuckets
		}
		l.buckets, l.making = lru.New(int(max(l.CacheSize, 1))), &sync.Mutex{}
		p.limits = append(p.limits, l)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("configuration of EventRateLimit: %w", errors.Join(errs...))
	}
	return p, nil
}

func (p *eventRateLimit) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	// Events of the group events.k8s.io are not limited, as in kube-apiserver.
	if a.IsDryRun() || a.GetKind().GroupKind() != corev1.SchemeGroupVersion.WithKind("Event").GroupKind() {
		return nil
	}
	var errs []error
	for i := range p.limits { // all of them are charged
		if l := &p.limits[i]; !l.take(a) {
			errs = append(errs, fmt.Errorf("more events per %s than %d a second", l.Type, l.QPS))
		}
	}
	if len(errs) > 0 {
		return apierrors.NewTooManyRequestsError(errors.Join(errs...).Error())
	}
	return nil
}

func (l *eventLimit) take(a admission.Attributes) bool {
	key := ""
	switch l.Type {
	case "Namespace":
		key = a.GetNamespace()
	case "User":
		key = a.GetUserInfo().GetName()
	case "SourceAndObject":
		if e, ok := a.GetObject().(*corev1.Event); ok {
			o := e.InvolvedObject
			key = fmt.Sprintf("%q", []string{e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion})
		}
	}
	l.making.Lock()
	defer l.making.Unlock()
	bucket, ok := l.buckets.Get(key)
	if !ok {
		bucket = flowcontrol.NewTokenBucketRateLimiter(float32(l.QPS), int(l.Burst))
		l.buckets.Add(key, bucket)
	}
	return bucket.(flowcontrol.RateLimiter).TryAccept()
}
