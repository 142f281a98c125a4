package controller_test

import (
	"context"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	greetingsv1 "github.com/kinproc/kinproc/examples/kubebuilder/api/v1"
	"github.com/kinproc/kinproc/server/servertest"
)

var (
	ctx       context.Context
	cancel    context.CancelFunc
	cfg       *rest.Config
	k8sClient client.Client
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controllers")
}

var _ = BeforeSuite(func() {
	ctx, cancel = context.WithCancel(context.Background())
	Expect(greetingsv1.AddToScheme(scheme.Scheme)).To(Succeed())

	cfg = servertest.Run(GinkgoT(), servertest.WithoutControllers).RESTConfig()
	_, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{
		Paths:              []string{filepath.Join("..", "config", "crd", "bases")},
		ErrorIfPathMissing: true,
	})
	Expect(err).NotTo(HaveOccurred())

	k8sClient, err = client.New(cfg, client.Options{Scheme: scheme.Scheme})
	Expect(err).NotTo(HaveOccurred())
})

var _ = AfterSuite(func() {
	cancel()
})
