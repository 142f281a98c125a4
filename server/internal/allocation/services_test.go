package allocation_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/kinproc/kinproc/chain/core"
	"github.com/kinproc/kinproc/chain/kind"
	"github.com/kinproc/kinproc/server/internal/allocation"
)

// TestNodePortsOfServices creates and updates services and checks their node ports.
func TestNodePortsOfServices(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	groups := core.Groups(core.Dependencies{Services: c.allocator(t, allocation.Options{})})
	scheme, err := core.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	resources, err := kind.NewResources(scheme, c.resources, groups...)
	if err != nil {
		t.Fatal(err)
	}
	services := resources[corev1.SchemeGroupVersion]["services"].(rest.CreaterUpdater)
	ctx := genericapirequest.WithNamespace(t.Context(), "n")
	type port = corev1.ServicePort
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	for name, test := range map[string]struct {
		old, new []port
		want     string // the ports, or part of the error
	}{
		"one for both protocols": {
			nil, []port{{Port: 53, Protocol: tcp}, {Port: 53, Protocol: udp}}, "a a",
		},
		"the one that is asked for": {
			nil, []port{{Port: 53, Protocol: tcp}, {Port: 53, Protocol: udp, NodePort: 30053}},
			"30053 30053",
		},
		"one for two ports": {nil, []port{
			{Port: 1, Protocol: tcp, NodePort: 30001},
			{Port: 2, Protocol: udp, NodePort: 30001},
		}, "spec.ports[1].nodePort"},
		"a protocol more": {[]port{{Port: 53, Protocol: tcp, NodePort: 30054}},
			[]port{{Port: 53, Protocol: tcp, NodePort: 30054}, {Port: 53, Protocol: udp}}, "30054 a"},
		"the ones that were shared": {
			[]port{{Port: 54, Protocol: tcp, NodePort: 30055}, {Port: 54, Protocol: udp, NodePort: 30055}},
			[]port{{Port: 54, Protocol: tcp}, {Port: 54, Protocol: udp}}, "30055 30055",
		},
		"one twice": {[]port{{Port: 1, Protocol: tcp, NodePort: 30003}},
			[]port{{Port: 1, Protocol: tcp, NodePort: 30003}, {Port: 2, Protocol: tcp, NodePort: 30003}},
			"duplicate node port 30003"},
	} {
		t.Run(name, func(t *testing.T) {
			service := func(ports []port) *corev1.Service {
				s := &corev1.Service{
					ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(name, " ", "-"), Namespace: "n"},
					Spec: corev1.ServiceSpec{
						Type:     corev1.ServiceTypeNodePort,
						Selector: map[string]string{"a": "b"},
					},
				}
				for _, p := range ports {
					p.Name = strings.ToLower(fmt.Sprint("p", p.Port, p.Protocol))
					s.Spec.Ports = append(s.Spec.Ports, p)
				}
				scheme.Default(s)
				return s
			}
			create := func(ports []port) (runtime.Object, error) {
				return services.Create(ctx, service(ports), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
			}
			var obj runtime.Object
			var err error
			if test.old == nil {
				obj, err = create(test.new)
			} else {
				if _, err := create(test.old); err != nil {
					t.Fatal(err)
				}
				s := service(test.new)
				obj, _, err = services.Update(ctx, s.Name, rest.DefaultUpdatedObjectInfo(s),
					rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
			}
			if err != nil {
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want %s", err, test.want)
				}
				return
			}
			if got := portNames(obj.(*corev1.Service).Spec.Ports,
				append(test.old, test.new...)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

// portNames returns the node ports. Ports that are not in known are named a, b and so on.
func portNames(ports, known []corev1.ServicePort) string {
	names := map[int32]string{}
	for _, p := range known {
		names[p.NodePort] = strconv.Itoa(int(p.NodePort))
	}
	next := 'a'
	var list []string
	for _, p := range ports {
		if names[p.NodePort] == "" {
			names[p.NodePort] = string(next)
			next++
		}
		list = append(list, names[p.NodePort])
	}
	return strings.Join(list, " ")
}
