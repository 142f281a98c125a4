package legacy

import (
	"testing"

	"github.com/kinproc/kinproc/chain/kind/kindtest"
)

func FuzzService(f *testing.F) {
	kindtest.Fuzz(f, Services(nil, nil, false, nil),
		`{"metadata":{"name":"s"},"spec":{"selector":{"a":"b"},"ports":[{"port":80}]}}`,
		`{"spec":{"type":"NodePort","ports":[{"name":"a","port":80,"nodePort":30000},{"name":"b","port":80,"protocol":"UDP","nodePort":30000}],"sessionAffinity":"ClientIP"}}`,
		`{"spec":{"type":"LoadBalancer","loadBalancerSourceRanges":["10.0.0.0/8 "],"externalTrafficPolicy":"Local","healthCheckNodePort":1,"ports":[{"port":1,"targetPort":"x"}],"loadBalancerClass":"a/b"}}`,
		`{"spec":{"type":"ExternalName","externalName":"a.b.","clusterIP":"None","clusterIPs":["None"],"ipFamilies":["IPv4","IPv6"],"ipFamilyPolicy":"PreferDualStack"}}`,
		`{"metadata":{"annotations":{"service.beta.kubernetes.io/load-balancer-source-ranges":","}},"spec":{"clusterIPs":["10.0.0.1","::1"],"externalIPs":["127.0.0.1"],"trafficDistribution":"PreferClose"},
		"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4","hostname":"h","ipMode":"Proxy","ports":[{"port":1,"error":"e"}]}]}}}`)
}
