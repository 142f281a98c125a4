package legacy

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// registerConnectOptions registers the options of log, exec, attach, portforward and the proxies,
// which are passed as query parameters.
func registerConnectOptions(scheme *runtime.Scheme) error {
	internal := schema.GroupVersion{Version: runtime.APIVersionInternal}
	for _, options := range []runtime.Object{
		&corev1.PodLogOptions{}, &corev1.PodExecOptions{}, &corev1.PodAttachOptions{},
		&corev1.PodPortForwardOptions{},
		&corev1.PodProxyOptions{}, &corev1.NodeProxyOptions{},
	} {
		scheme.AddKnownTypes(internal, options)
		if err := scheme.AddConversionFunc((*url.Values)(nil), options, fromQuery); err != nil {
			return fmt.Errorf("register %T: %w", options, err)
		}
	}
	scheme.AddTypeDefaultingFunc(&corev1.PodExecOptions{}, func(o any) {
		options := o.(*corev1.PodExecOptions)
		options.Stderr, options.Stdout = true, true
	})
	scheme.AddTypeDefaultingFunc(&corev1.PodAttachOptions{}, func(o any) {
		options := o.(*corev1.PodAttachOptions)
		options.Stderr, options.Stdout = true, true
	})
	return nil
}

// fromQuery fills in an options struct from query parameters, which have the names of the JSON
// fields.
func fromQuery(in, out any, scope conversion.Scope) error {
	query, to := *in.(*url.Values), reflect.ValueOf(out).Elem()
	for i := range to.NumField() {
		name, _, _ := strings.Cut(to.Type().Field(i).Tag.Get("json"), ",")
		values, ok := query[name]
		if name == "" || !ok || len(values) == 0 {
			continue
		}
		if err := setParameter(values, to.Field(i).Addr().Interface(), scope); err != nil {
			return fmt.Errorf("query parameter %s: %w", name, err)
		}
	}
	return nil
}

func setParameter(values []string, field any, scope conversion.Scope) error {
	switch to := field.(type) {
	case *[]string:
		*to = append([]string(nil), values...)
		return nil
	case **string:
		*to = &values[0]
		return nil
	case *string:
		return runtime.Convert_Slice_string_To_string(&values, to, scope)
	case *bool:
		return runtime.Convert_Slice_string_To_bool(&values, to, scope)
	case *int64:
		return runtime.Convert_Slice_string_To_int64(&values, to, scope)
	case **int64:
		return runtime.Convert_Slice_string_To_Pointer_int64(&values, to, scope)
	case *[]int32:
		return metav1.Convert_Slice_string_To_Slice_int32(&values, to, scope)
	case **metav1.Time:
		return metav1.Convert_Slice_string_To_Pointer_v1_Time(&values, to, scope)
	}
	return fmt.Errorf("unsupported type %T", field)
}
