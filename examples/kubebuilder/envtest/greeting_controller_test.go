package controller_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	greetingsv1 "github.com/kinproc/kinproc/examples/kubebuilder/api/v1"
	"github.com/kinproc/kinproc/examples/kubebuilder/controller"
)

var _ = Describe("The controller of greetings", func() {
	It("makes a ConfigMap", func() {
		greeting := &greetingsv1.Greeting{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "world"},
			Spec:       greetingsv1.GreetingSpec{Name: "world"},
		}
		Expect(k8sClient.Create(ctx, greeting)).To(Succeed())

		reconciler := &controller.GreetingReconciler{Client: k8sClient}
		name := client.ObjectKeyFromObject(greeting)
		_, err := reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: name})
		Expect(err).NotTo(HaveOccurred())

		config := &corev1.ConfigMap{}
		Expect(k8sClient.Get(ctx, name, config)).To(Succeed())
		Expect(config.Data).To(HaveKeyWithValue("text", "Hello, world!"))
		Expect(k8sClient.Get(ctx, name, greeting)).To(Succeed())
		Expect(greeting.Status.Text).To(Equal("Hello, world!"))
	})

	It("is given valid greetings only", func() {
		greeting := &greetingsv1.Greeting{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "nobody"},
		}
		Expect(k8sClient.Create(ctx, greeting)).To(MatchError(ContainSubstring("spec.name")))
	})
})
