package horizontalpodautoscalers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// metricsClient reads metrics. Its types have the fields of the metrics APIs that the controller
// needs.
type metricsClient struct{ client rest.Interface }

// sample is the value of a metric of a pod, in thousandths.
type sample struct {
	value  int64
	at     time.Time
	window time.Duration
}

type podMetricsList struct {
	Items []struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Timestamp  metav1.Time       `json:"timestamp"`
		Window     metav1.Duration   `json:"window"`
		Containers []struct {
			Name  string              `json:"name"`
			Usage corev1.ResourceList `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

// customValueList is a MetricValueList of custom.metrics.k8s.io or an ExternalMetricValueList.
type customValueList struct {
	Items []struct {
		DescribedObject corev1.ObjectReference `json:"describedObject"`
		Timestamp       metav1.Time            `json:"timestamp"`
		WindowSeconds   *int64                 `json:"windowSeconds"`
		Value           resource.Quantity      `json:"value"`
	} `json:"items"`
}

// get gets an object. Name is what errors call it.
func (c metricsClient) get(
	ctx context.Context, path, name string, parameters url.Values, into any,
) error {
	request := c.client.Get().AbsPath(path).SetHeader("Accept", "application/json")
	for key, values := range parameters {
		request = request.Param(key, values[0])
	}
	answer := request.Do(ctx)
	err := answer.Error() // that of Raw would not say more than the code
	if apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("%w (get %s)", err, name)
	}
	if err != nil {
		return err
	}
	data, err := answer.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

// resource returns how much of a resource each pod uses, or a container of each pod.
func (c metricsClient) resource(
	ctx context.Context, namespace string, selector labels.Selector, name corev1.ResourceName,
	container string,
) (map[string]sample, error) {
	var list podMetricsList
	err := c.get(ctx, "/apis/metrics.k8s.io/v1beta1/namespaces/"+namespace+"/pods",
		"pods.metrics.k8s.io", url.Values{"labelSelector": {selector.String()}}, &list)
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	samples := map[string]sample{}
	for i := range list.Items {
		p := &list.Items[i]
		s := sample{at: p.Timestamp.Time, window: p.Window.Duration}
		complete, found := true, false
		for _, used := range p.Containers {
			if container != "" && used.Name != container {
				continue
			}
			amount, ok := used.Usage[name]
			complete, found = complete && ok, true
			s.value += amount.MilliValue()
		}
		if complete && found {
			samples[p.Metadata.Name] = s
		}
	}
	if len(samples) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	return samples, nil
}

// pods returns the values of a custom metric of pods.
func (c metricsClient) pods(
	ctx context.Context, namespace string, selector labels.Selector,
	metric *autoscalingv2.MetricIdentifier,
) (map[string]sample, error) {
	list, err := c.custom(ctx, namespace, "pods", "*", metric,
		url.Values{"labelSelector": {selector.String()}})
	if err != nil {
		return nil, err
	}
	samples := map[string]sample{}
	for _, v := range list.Items {
		s := sample{value: v.Value.MilliValue(), at: v.Timestamp.Time, window: time.Minute}
		if v.WindowSeconds != nil {
			s.window = time.Duration(*v.WindowSeconds) * time.Second
		}
		samples[v.DescribedObject.Name] = s
	}
	return samples, nil
}

// object returns the value of a custom metric of an object.
func (c metricsClient) object(
	ctx context.Context, namespace string, object *autoscalingv2.CrossVersionObjectReference,
	resource string, metric *autoscalingv2.MetricIdentifier,
) (int64, error) {
	list, err := c.custom(ctx, namespace, resource, object.Name, metric, url.Values{})
	if err != nil {
		return 0, err
	}
	return list.Items[0].Value.MilliValue(), nil
}

func (c metricsClient) custom(
	ctx context.Context, namespace, resource, name string, metric *autoscalingv2.MetricIdentifier,
	parameters url.Values,
) (*customValueList, error) {
	if metric.Selector != nil {
		parameters.Set("metricLabelSelector", metav1.FormatLabelSelector(metric.Selector))
	}
	path := fmt.Sprintf("/apis/custom.metrics.k8s.io/v1beta2/namespaces/%s/%s/%s/%s", namespace,
		resource, name, metric.Name)
	if resource == "namespaces" {
		path = fmt.Sprintf("/apis/custom.metrics.k8s.io/v1beta2/namespaces/%s/metrics/%s", name,
			metric.Name)
	}
	list := &customValueList{}
	named := fmt.Sprintf("%s.custom.metrics.k8s.io %s", resource, name)
	if err := c.get(ctx, path, named, parameters, list); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	return list, nil
}

// external returns the sum of the values of an external metric.
func (c metricsClient) external(
	ctx context.Context, namespace string, metric *autoscalingv2.MetricIdentifier,
) (sum int64, err error) {
	list, parameters := &customValueList{}, url.Values{}
	if metric.Selector != nil {
		parameters.Set("labelSelector", metav1.FormatLabelSelector(metric.Selector))
	}
	err = c.get(ctx, fmt.Sprintf("/apis/external.metrics.k8s.io/v1beta1/namespaces/%s/%s", namespace,
		metric.Name), metric.Name+".external.metrics.k8s.io", parameters, list)
	if err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, errors.New("no metrics returned from external metrics API")
	}
	for _, v := range list.Items {
		sum += v.Value.MilliValue()
	}
	return sum, nil
}

// resourceOf returns the resource of the kind of an object.
func (a *autoscaler) resourceOf(
	object *autoscalingv2.CrossVersionObjectReference,
) (string, error) {
	gv, err := schema.ParseGroupVersion(object.APIVersion)
	if err != nil {
		return "", err
	}
	list, err := a.Client.Discovery().ServerResourcesForGroupVersion(object.APIVersion)
	if err != nil {
		return "", fmt.Errorf("discover %s: %w", object.APIVersion, err)
	}
	for i := range list.APIResources {
		if r := &list.APIResources[i]; r.Kind == object.Kind {
			return schema.GroupResource{Group: gv.Group, Resource: r.Name}.String(), nil
		}
	}
	return "", fmt.Errorf("nobody serves the kind %s of %s", object.Kind, object.APIVersion)
}
