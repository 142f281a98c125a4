package aggregator

import (
	"net/url"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/proxy"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
)

func TestResolver(t *testing.T) {
	t.Parallel()
	clusterIP := func(ip string) corev1.ServiceSpec {
		return corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: ip,
			Ports: []corev1.ServicePort{{Name: "https", Port: 443}, {Name: "metrics", Port: 9090}},
		}
	}
	endpoint := func(ready bool, address string) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		}
	}
	ports := []discoveryv1.EndpointPort{{Name: new("https"), Port: new(int32(8443))}}

	for _, test := range []struct {
		name          string
		spec          corev1.ServiceSpec
		endpoints     []discoveryv1.Endpoint // nil means no endpoint slice
		endpointsOnly bool
		port          int32
		want          string // empty means an error
	}{
		{"external name", corev1.ServiceSpec{
			Type:         corev1.ServiceTypeExternalName,
			ExternalName: "localhost",
		}, nil, false, 8443, "https://localhost:8443"},
		{"external name, endpoints only", corev1.ServiceSpec{
			Type:         corev1.ServiceTypeExternalName,
			ExternalName: "localhost",
		}, nil, true, 8443, "https://localhost:8443"},
		{
			"loopback endpoint", clusterIP("10.0.0.7"), []discoveryv1.Endpoint{endpoint(true, "127.0.0.1")},
			false, 443, "https://127.0.0.1:8443",
		},
		{
			"loopback endpoint of IPv6", clusterIP("10.0.0.7"),
			[]discoveryv1.Endpoint{endpoint(true, "::1")}, false, 443, "https://[::1]:8443",
		},
		{"only the ready endpoint", clusterIP("10.0.0.7"), []discoveryv1.Endpoint{
			endpoint(false, "192.0.2.1"), endpoint(true, "192.0.2.2"),
		}, false, 443, "https://192.0.2.2:8443"},
		{
			"no ready endpoint", clusterIP("10.0.0.7"), []discoveryv1.Endpoint{endpoint(false, "192.0.2.1")},
			false, 443, "",
		},
		{
			"no endpoint has the port", clusterIP("10.0.0.7"),
			[]discoveryv1.Endpoint{endpoint(true, "192.0.2.1")}, false, 9090, "",
		},
		{"cluster IP", clusterIP("10.0.0.7"), nil, false, 443, "https://10.0.0.7:443"},
		{"cluster IP, endpoints only", clusterIP("10.0.0.7"), nil, true, 443, ""},
		{"unknown port", clusterIP("10.0.0.7"), nil, false, 444, ""},
		{
			"headless with endpoints", clusterIP(corev1.ClusterIPNone),
			[]discoveryv1.Endpoint{endpoint(true, "192.0.2.1")}, false, 443, "https://192.0.2.1:8443",
		},
		{"headless without endpoints", clusterIP(corev1.ClusterIPNone), nil, false, 443, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			services := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			slices := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
				cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			meta := metav1.ObjectMeta{
				Namespace: "ns",
				Name:      "s",
				Labels:    map[string]string{discoveryv1.LabelServiceName: "s"},
			}
			if err := services.Add(&corev1.Service{ObjectMeta: meta, Spec: test.spec}); err != nil {
				t.Fatal(err)
			}
			if test.endpoints != nil {
				if err := slices.Add(&discoveryv1.EndpointSlice{
					ObjectMeta: meta,
					Ports:      ports,
					Endpoints:  test.endpoints,
				}); err != nil {
					t.Fatal(err)
				}
			}
			getter, err := proxy.NewEndpointSliceListerGetter(
				discoverylisters.NewEndpointSliceLister(slices))
			if err != nil {
				t.Fatal(err)
			}
			r := &Resolver{
				Services:       corelisters.NewServiceLister(services),
				EndpointSlices: getter,
				EndpointsOnly:  test.endpointsOnly,
			}
			got, err := r.ResolveEndpoint("ns", "s", test.port)
			switch {
			case test.want == "" && err == nil:
				t.Errorf("got %s, want an error", got)
			case test.want != "" && (err != nil || got.String() != test.want):
				t.Errorf("got %v, %v, want %s", got, err, test.want)
			}
		})
	}
}

func TestResolverKnowsItself(t *testing.T) {
	t.Parallel()
	empty := cache.NewIndexer(cache.MetaNamespaceKeyFunc,
		cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	r := &Resolver{
		Services: corelisters.NewServiceLister(empty),
		Self:     &url.URL{Scheme: "https", Host: "127.0.0.1:6443"},
	}
	u, err := r.ResolveEndpoint("default", "kubernetes", 443)
	if err != nil || u.String() != "https://127.0.0.1:6443" {
		t.Fatalf("got %v, %v", u, err)
	}
	u.Path = "/changed"
	if r.Self.Path != "" {
		t.Error("the caller changed the resolver's own URL")
	}
	if u, err := r.ResolveEndpoint("default", "kubernetes", 444); err == nil {
		t.Errorf("another port resolves to %s", u)
	}
}
