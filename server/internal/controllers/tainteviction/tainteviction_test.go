package tainteviction_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/kinproc/kinproc/server"
	"github.com/kinproc/kinproc/server/internal/controllers/tainteviction"
	"github.com/kinproc/kinproc/server/internal/controllers/workloadtest"
	"github.com/kinproc/kinproc/server/servertest"
)

func TestEviction(t *testing.T) {
	t.Parallel()
	s := servertest.Run(t, func(o *server.Options) {
		o.SimulatedNodes, o.Controllers = 1, []string{tainteviction.Name, "serviceaccount"}
	})
	client := kubernetes.NewForConfigOrDie(s.RESTConfig())
	pods := client.CoreV1().Pods("default")
	taint := func(taints string) {
		t.Helper()
		workloadtest.Until(t, func(ctx context.Context) string {
			n, err := client.CoreV1().Nodes().Get(ctx, "simulated-0", metav1.GetOptions{})
			if err == nil && (len(n.Spec.Taints) == 0 || taints == "[]") {
				_, err = client.CoreV1().Nodes().Patch(ctx, n.Name, types.MergePatchType,
					[]byte(`{"spec":{"taints":`+taints+`}}`), metav1.PatchOptions{})
				workloadtest.OK(t, err)
				return ""
			}
			return fmt.Sprintf("%v; %+v", err, n)
		})
	}
	tolerates := func(seconds *int64) []corev1.Toleration {
		return []corev1.Toleration{{
			Key: "gone", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: seconds,
		}}
	}
	for name, tolerations := range map[string][]corev1.Toleration{
		"none": nil, "second": tolerates(ptr.To(int64(1))), "hour": tolerates(ptr.To(int64(3600))),
		"forever": tolerates(nil), "ages": tolerates(ptr.To(int64(1) << 40)),
		"first": append(tolerates(nil), tolerates(ptr.To(int64(0)))...),
	} {
		_, err := pods.Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.PodSpec{
				NodeName: "simulated-0", Containers: []corev1.Container{{Name: "c", Image: "i"}},
				Tolerations: tolerations,
			},
		}, metav1.CreateOptions{})
		workloadtest.OK(t, err)
	}
	_, err := pods.Patch(t.Context(), "none", types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["example.com/hold"]}}`), metav1.PatchOptions{})
	workloadtest.OK(t, err)
	tainted := time.Now()
	taint(`[{"key":"gone","effect":"NoExecute"}]`)
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := pods.Get(ctx, "none", metav1.GetOptions{})
		if err == nil && p.DeletionTimestamp != nil && slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool {
				return c.Type == corev1.DisruptionTarget && c.Reason == "DeletionByTaintManager"
			}) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, p)
	})
	workloadtest.Until(t, func(ctx context.Context) string {
		p, err := pods.Get(ctx, "second", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("%v; %+v", err, p)
	})
	if took := time.Since(tainted); took < time.Second {
		t.Errorf("a pod that tolerates the taint for a second was deleted after %v", took)
	}
	taint("[]")
	workloadtest.Until(t, func(ctx context.Context) string {
		events, err := client.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		workloadtest.OK(t, err)
		var all []string
		for _, e := range events.Items {
			all = append(all, e.Reason+" "+e.Message)
		}
		for _, message := range []string{
			"Marking for deletion Pod default/none", "Marking for deletion Pod default/second",
			"Cancelling deletion of Pod default/hour",
		} {
			if !slices.Contains(all, "TaintManagerEviction "+message) {
				return strings.Join(all, "\n")
			}
		}
		return ""
	})
	for _, name := range []string{"hour", "forever", "ages", "first"} {
		if p, err := pods.Get(t.Context(), name, metav1.GetOptions{}); err != nil ||
			p.DeletionTimestamp != nil {
			t.Errorf("%s: %v; %+v", name, err, p)
		}
	}
}
