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
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/lru"

	"github.com/kinproc/kinproc/chain/documents"
)

// eventRateLimit (EventRateLimit) limits the rate of events. It is off by default and requires a
// configuration.
type eventRateLimit struct {
	*admission.Handler
	limits []eventLimit
}

// eventLimit is a limit of the configuration eventratelimit.admission.k8s.io/v1alpha1, with its
// token buckets.
type eventLimit struct {
	// Type is what gets a separate bucket: Server, Namespace, User or SourceAndObject.
	Type  string `json:"type"`
	QPS   int32  `json:"qps"`
	Burst int32  `json:"burst"`
	// CacheSize is the maximum number of buckets. Beyond it, the least recently used bucket is
	// dropped.
	CacheSize int32 `json:"cacheSize"`

	buckets *lru.Cache
	making  *sync.Mutex
}

const defaultEventBuckets = 4096

func newEventRateLimit(config io.Reader) (admission.Interface, error) {
	p := &eventRateLimit{Handler: admission.NewHandler(admission.Create, admission.Update)}
	if config == nil {
		return nil, errors.New("EventRateLimit requires a configuration: " +
			"name its file with --admission-control-config-file")
	}
	var file struct {
		metav1.TypeMeta `json:",inline"`
		Limits          []eventLimit `json:"limits"`
	}
	if err := documents.Read(config, &file); err != nil {
		return nil, fmt.Errorf("EventRateLimit configuration: %w", err)
	}
	var errs []error
	if file.APIVersion != "eventratelimit.admission.k8s.io/v1alpha1" || file.Kind != "Configuration" {
		errs = append(errs, fmt.Errorf(
			"unsupported kind %q of %q: must be Configuration of eventratelimit.admission.k8s.io/v1alpha1",
			file.Kind, file.APIVersion))
	}
	if len(file.Limits) == 0 {
		errs = append(errs, errors.New("limits: at least one is required"))
	}
	for i, l := range file.Limits {
		switch l.Type {
		case "Server":
			l.CacheSize = 1
		case "Namespace", "User", "SourceAndObject":
		default:
			errs = append(errs,
				fmt.Errorf("limits[%d].type %q: must be Server, Namespace, User or SourceAndObject", i, l.Type))
		}
		if l.QPS <= 0 || l.Burst <= 0 || l.CacheSize < 0 {
			errs = append(errs,
				fmt.Errorf("limits[%d]: qps and burst must be positive, cacheSize must not be negative", i))
		}
		if l.CacheSize == 0 {
			l.CacheSize = defaultEventBuckets
		}
		l.buckets, l.making = lru.New(int(max(l.CacheSize, 1))), &sync.Mutex{}
		p.limits = append(p.limits, l)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("EventRateLimit configuration: %w", errors.Join(errs...))
	}
	return p, nil
}

func (p *eventRateLimit) Validate(
	_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces,
) error {
	// As in kube-apiserver, events in the group events.k8s.io are not limited.
	if a.IsDryRun() ||
		a.GetKind().GroupKind() != corev1.SchemeGroupVersion.WithKind("Event").GroupKind() {
		return nil
	}
	var errs []error
	for i := range p.limits { // charge every limit, even after one is exceeded
		if l := &p.limits[i]; !l.take(a) {
			errs = append(errs, fmt.Errorf("the %s limit of %d events per second is exceeded",
				l.Type, l.QPS))
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
			key = fmt.Sprintf("%q", []string{
				e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion,
			})
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
