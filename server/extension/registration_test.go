package extension_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/extension"
	"github.com/kinproc/kinproc/server/servertest"
)

// The Service depends on where the server is.
func TestRegistration(t *testing.T) {
	t.Parallel()
	local, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		options extension.Options
		service corev1.ServiceSpec
		slice   string // the address in the EndpointSlice
	}{
		"loopback": {
			service: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "127.0.0.1"},
		},
		"name": {
			options: extension.Options{Host: "chat.example.com"},
			service: corev1.ServiceSpec{
				Type: corev1.ServiceTypeExternalName, ExternalName: "chat.example.com",
			},
		},
		"address":   {options: extension.Options{Host: "192.0.2.7"}, slice: "192.0.2.7"},
		"address 6": {options: extension.Options{Host: "2001:db8::7"}, slice: "2001:db8::7"},
		"pods": {
			options: extension.Options{
				Selector: map[string]string{"app": "chat"}, Listener: local,
			},
			service: corev1.ServiceSpec{Selector: map[string]string{"app": "chat"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.options.Groups = []kind.Group{chat()}
			test.options.RESTConfig = &rest.Config{Host: "https://127.0.0.1:1"}
			s, err := extension.New(test.options)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			r := s.Registration()
			if got := r.Service.Spec; got.Type != test.service.Type ||
				got.ExternalName != test.service.ExternalName ||
				got.Selector["app"] != test.service.Selector["app"] {
				t.Errorf("the service is %+v, want %+v", got, test.service)
			}
			if test.slice == "" && r.EndpointSlice != nil || test.slice != "" &&
				(r.EndpointSlice == nil || r.EndpointSlice.Endpoints[0].Addresses[0] != test.slice) {
				t.Errorf("the endpoint slice is %v, want one with %q", r.EndpointSlice, test.slice)
			}
			port := int32(s.Addr().(*net.TCPAddr).Port)
			if len(r.APIServices) != 2 || r.APIServices[0].Name != "v2.chat.example.com" ||
				test.service.ExternalName != "" && *r.APIServices[0].Spec.Service.Port != port {
				t.Errorf("the APIServices are %v", r.APIServices)
			}
			manifests, err := r.YAML()
			if err != nil {
				t.Fatal(err)
			}
			k := newKubectl(t, servertest.Run(t, servertest.WithoutControllers))
			k.must("apiservice.apiregistration.k8s.io/v2.chat.example.com created", string(manifests),
				"apply", "-f", "FILE")
		})
	}
}

// What Register cannot do, it says.
func TestRegisterRefuses(t *testing.T) {
	t.Parallel()
	plane := servertest.Run(t)
	s, stop := start(t, extension.Options{RESTConfig: plane.RESTConfig()})
	other, err := extension.New(extension.Options{
		Groups: []kind.Group{chat()}, RESTConfig: plane.RESTConfig(), Name: "other",
	})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = extension.Register(ctx, plane.RESTConfig(), other.Registration())
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "not ready") {
		t.Errorf("register a server that does not run: %v", err)
	}
	register(t, plane.RESTConfig(), s)
	second, _ := start(t, extension.Options{RESTConfig: plane.RESTConfig(), Name: "second"})
	err = extension.Register(t.Context(), plane.RESTConfig(), second.Registration())
	if err == nil || !strings.Contains(err.Error(), "for another server, at service default/chat") {
		t.Errorf("register a second server: %v", err)
	}
	stop()
	if err := extension.Unregister(t.Context(), plane.RESTConfig(), s.Registration()); err != nil {
		t.Error(err)
	}
	register(t, plane.RESTConfig(), second)
}
