package rbacauthorizer

import (
	_ "k8s.io/apiserver/pkg/features" // registers the gates of zpages
	zpages "k8s.io/component-base/zpages/features"

	"github.com/kinproc/kinproc/chain/features"
)

// clusterRoles returns the cluster roles, except for the controllers' and the aggregating ones.
func clusterRoles() []role {
	return []role{
		{name: "cluster-admin", rules: []rule{
			{verbs: "*", groups: "*", resources: "*"},
			{verbs: "*", urls: "*"},
		}},
		{name: "system:aggregate-to-admin", rules: []rule{
			{verbs: "create", groups: "authorization.k8s.io", resources: "localsubjectaccessreviews"},
			{verbs: readWrite, groups: "rbac.authorization.k8s.io", resources: "rolebindings roles"},
		}},
		{name: "system:aggregate-to-edit", rules: []rule{
			{
				verbs:     read,
				groups:    "core",
				resources: "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy",
			},
			{verbs: "impersonate", groups: "core", resources: "serviceaccounts"},
			{
				verbs:     write,
				groups:    "core",
				resources: "pods pods/attach pods/exec pods/portforward pods/proxy",
			},
			{verbs: "create", groups: "core", resources: "pods/eviction"},
			{
				verbs:  write,
				groups: "core",
				resources: "configmaps persistentvolumeclaims replicationcontrollers " +
					"replicationcontrollers/scale secrets serviceaccounts services services/proxy",
			},
			{verbs: "create", groups: "core", resources: "serviceaccounts/token"},
			{verbs: write, groups: "core events.k8s.io", resources: "events"},
			{verbs: write, groups: "apps", resources: "daemonsets deployments deployments/rollback " +
				"deployments/scale replicasets replicasets/scale statefulsets statefulsets/scale"},
			{verbs: write, groups: "autoscaling", resources: "horizontalpodautoscalers"},
			{verbs: write, groups: "batch", resources: "cronjobs jobs"},
			{
				verbs:  write,
				groups: "extensions",
				resources: "daemonsets deployments deployments/rollback deployments/scale ingresses " +
					"networkpolicies replicasets replicasets/scale replicationcontrollers/scale",
			},
			{verbs: write, groups: "policy", resources: "poddisruptionbudgets"},
			{verbs: write, groups: "networking.k8s.io", resources: "ingresses networkpolicies"},
			{verbs: readWrite, groups: "coordination.k8s.io", resources: "leases"},
			{verbs: write, groups: "resource.k8s.io", resources: "resourceclaims resourceclaimtemplates"},
		}},
		{name: "system:aggregate-to-view", rules: []rule{
			{
				verbs:  read,
				groups: "core",
				resources: "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods " +
					"replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status",
			},
			{verbs: read, groups: "core", resources: "bindings limitranges namespaces/status pods/log " +
				"pods/status replicationcontrollers/status resourcequotas resourcequotas/status"},
			{verbs: read, groups: "core", resources: "namespaces"},
			{verbs: read, groups: "core events.k8s.io", resources: "events"},
			{verbs: read, groups: "discovery.k8s.io", resources: "endpointslices"},
			{verbs: read, groups: "apps", resources: "controllerrevisions daemonsets daemonsets/status " +
				"deployments deployments/scale deployments/status " +
				"replicasets replicasets/scale replicasets/status statefulsets statefulsets/scale " +
				"statefulsets/status"},
			{
				verbs:     read,
				groups:    "autoscaling",
				resources: "horizontalpodautoscalers horizontalpodautoscalers/status",
			},
			{verbs: read, groups: "batch", resources: "cronjobs cronjobs/status jobs jobs/status"},
			{
				verbs:  read,
				groups: "extensions",
				resources: "daemonsets daemonsets/status deployments deployments/scale deployments/status " +
					"ingresses ingresses/status " +
					"networkpolicies replicasets replicasets/scale replicasets/status " +
					"replicationcontrollers/scale",
			},
			{verbs: read, groups: "policy", resources: "poddisruptionbudgets poddisruptionbudgets/status"},
			{
				verbs:     read,
				groups:    "networking.k8s.io",
				resources: "ingresses ingresses/status networkpolicies",
			},
			{
				verbs:     read,
				groups:    "resource.k8s.io",
				resources: "resourceclaims resourceclaims/status resourceclaimtemplates",
			},
		}},
		{name: "system:auth-delegator", rules: []rule{
			{verbs: "create", groups: "authentication.k8s.io", resources: "tokenreviews"},
			{verbs: "create", groups: "authorization.k8s.io", resources: "subjectaccessreviews"},
		}},
		{name: "system:basic-user", rules: []rule{
			{
				verbs:     "create",
				groups:    "authorization.k8s.io",
				resources: "selfsubjectaccessreviews selfsubjectrulesreviews",
			},
			{verbs: "create", groups: "authentication.k8s.io", resources: "selfsubjectreviews"},
		}},
		{name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient", rules: []rule{
			{
				verbs:     "create",
				groups:    "certificates.k8s.io",
				resources: "certificatesigningrequests/nodeclient",
			},
		}},
		{name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", rules: []rule{
			{
				verbs:     "create",
				groups:    "certificates.k8s.io",
				resources: "certificatesigningrequests/selfnodeclient",
			},
		}},
		{name: "system:certificates.k8s.io:kube-apiserver-client-approver", rules: []rule{
			{
				verbs:     "approve",
				groups:    "certificates.k8s.io",
				resources: "signers",
				names:     "kubernetes.io/kube-apiserver-client",
			},
		}},
		{name: "system:certificates.k8s.io:kube-apiserver-client-kubelet-approver", rules: []rule{
			{
				verbs:     "approve",
				groups:    "certificates.k8s.io",
				resources: "signers",
				names:     "kubernetes.io/kube-apiserver-client-kubelet",
			},
		}},
		{name: "system:certificates.k8s.io:kubelet-serving-approver", rules: []rule{
			{
				verbs:     "approve",
				groups:    "certificates.k8s.io",
				resources: "signers",
				names:     "kubernetes.io/kubelet-serving",
			},
		}},
		{name: "system:certificates.k8s.io:legacy-unknown-approver", rules: []rule{
			{
				verbs:     "approve",
				groups:    "certificates.k8s.io",
				resources: "signers",
				names:     "kubernetes.io/legacy-unknown",
			},
		}},
		{
			name: "system:cluster-trust-bundle-discovery", gate: features.ClusterTrustBundle,
			rules: []rule{
				{verbs: read, groups: "certificates.k8s.io", resources: "clustertrustbundles"},
			},
		},
		{name: "system:discovery", rules: []rule{
			{
				verbs: "get",
				urls: "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version " +
					"/version/",
			},
		}},
		{name: "system:heapster", rules: []rule{
			{verbs: read, groups: "core", resources: "events namespaces nodes pods"},
			{verbs: read, groups: "extensions", resources: "deployments"},
		}},
		{name: "system:kube-aggregator", rules: []rule{
			{verbs: read, groups: "core", resources: "endpoints services"},
		}},
		{name: "system:kube-controller-manager", rules: []rule{
			events,
			{verbs: "create", groups: "coordination.k8s.io", resources: "leases"},
			{
				verbs:     "get update",
				groups:    "coordination.k8s.io",
				resources: "leases",
				names:     "kube-controller-manager",
			},
			{verbs: "create", groups: "core", resources: "secrets serviceaccounts"},
			{verbs: "delete", groups: "core", resources: "secrets"},
			{verbs: "get", groups: "core", resources: "configmaps namespaces secrets serviceaccounts"},
			{verbs: "update", groups: "core", resources: "secrets serviceaccounts"},
			{verbs: "create", groups: "authentication.k8s.io", resources: "tokenreviews"},
			{verbs: "create", groups: "authorization.k8s.io", resources: "subjectaccessreviews"},
			{verbs: "list watch", groups: "*", resources: "*"},
			{verbs: "create", groups: "core", resources: "serviceaccounts/token"},
		}},
		{name: "system:kube-dns", rules: []rule{
			{verbs: "list watch", groups: "core", resources: "endpoints services"},
		}},
		{name: "system:kube-scheduler", rules: []rule{
			events,
			{verbs: "create", groups: "coordination.k8s.io", resources: "leases"},
			{
				verbs:     "get list update watch",
				groups:    "coordination.k8s.io",
				resources: "leases",
				names:     "kube-scheduler",
			},
			{verbs: readWrite, groups: "coordination.k8s.io", resources: "leasecandidates"},
			{verbs: read, groups: "core", resources: "nodes"},
			{verbs: "delete get list watch", groups: "core", resources: "pods"},
			{verbs: "create", groups: "core", resources: "bindings pods/binding"},
			{verbs: "patch update", groups: "core", resources: "pods/status"},
			{verbs: read, groups: "core", resources: "replicationcontrollers services"},
			{verbs: read, groups: "apps extensions", resources: "replicasets"},
			{verbs: read, groups: "apps", resources: "statefulsets"},
			{verbs: read, groups: "policy", resources: "poddisruptionbudgets"},
			{verbs: read, groups: "core", resources: "persistentvolumeclaims persistentvolumes"},
			{verbs: "create", groups: "authentication.k8s.io", resources: "tokenreviews"},
			{verbs: "create", groups: "authorization.k8s.io", resources: "subjectaccessreviews"},
			{verbs: read, groups: "storage.k8s.io", resources: "csinodes"},
			{verbs: read, groups: "storage.k8s.io", resources: "volumeattachments"},
			{verbs: read, groups: "core", resources: "namespaces"},
			{verbs: read, groups: "storage.k8s.io", resources: "csidrivers"},
			{verbs: read, groups: "storage.k8s.io", resources: "csistoragecapacities"},
			{verbs: read, groups: "resource.k8s.io", resources: "deviceclasses"},
			{verbs: "get list patch update watch", groups: "resource.k8s.io", resources: "resourceclaims"},
			{
				verbs:     "get list patch update watch",
				groups:    "resource.k8s.io",
				resources: "resourceclaims/status",
			},
			{verbs: "update", groups: "core", resources: "pods/finalizers"},
			{verbs: read, groups: "resource.k8s.io", resources: "resourceslices"},
			{
				verbs: "create delete", groups: "resource.k8s.io", resources: "resourceclaims",
				gate: features.DRAExtendedResource,
			},
			{
				verbs: read, groups: "resource.k8s.io", resources: "devicetaintrules",
				gate: features.DRADeviceTaintRules,
			},
			{
				verbs: "patch update", groups: "resource.k8s.io", resources: "resourceclaims/binding",
				gate: features.DRAResourceClaimGranularStatusAuthorization,
			},
		}},
		{name: "system:kubelet-api-admin", rules: []rule{
			{verbs: read, groups: "core", resources: "nodes"},
			{verbs: "proxy", groups: "core", resources: "nodes"},
			{verbs: "*", groups: "core", resources: "nodes/log nodes/metrics nodes/proxy nodes/stats"},
			{verbs: "*", groups: "core", resources: "nodes/configz nodes/healthz nodes/pods"},
		}},
		{name: "system:monitoring", rules: []rule{
			{verbs: "get", urls: monitoringURLs()},
			{verbs: "get", groups: "core", resources: "nodes/metrics"},
		}},
		{name: "system:node", rules: []rule{
			{verbs: "create", groups: "authentication.k8s.io", resources: "tokenreviews"},
			{
				verbs:     "create",
				groups:    "authorization.k8s.io",
				resources: "localsubjectaccessreviews subjectaccessreviews",
			},
			{verbs: read, groups: "core", resources: "services"},
			{verbs: "create get list watch", groups: "core", resources: "nodes"},
			{verbs: "patch update", groups: "core", resources: "nodes/status"},
			{verbs: "patch update", groups: "core", resources: "nodes"},
			events,
			{verbs: read, groups: "core", resources: "pods"},
			{verbs: "create delete", groups: "core", resources: "pods"},
			{verbs: "patch update", groups: "core", resources: "pods/status"},
			{verbs: "create", groups: "core", resources: "pods/eviction"},
			{verbs: read, groups: "core", resources: "configmaps secrets"},
			{verbs: "get", groups: "core", resources: "persistentvolumeclaims persistentvolumes"},
			{verbs: "get", groups: "core", resources: "endpoints"},
			{
				verbs:     "create get list watch",
				groups:    "certificates.k8s.io",
				resources: "certificatesigningrequests",
			},
			{verbs: "create delete get patch update", groups: "coordination.k8s.io", resources: "leases"},
			{verbs: "get", groups: "storage.k8s.io", resources: "volumeattachments"},
			{verbs: "create", groups: "core", resources: "serviceaccounts/token"},
			{verbs: "get patch update", groups: "core", resources: "persistentvolumeclaims/status"},
			{verbs: read, groups: "storage.k8s.io", resources: "csidrivers"},
			{verbs: "create delete get patch update", groups: "storage.k8s.io", resources: "csinodes"},
			{verbs: read, groups: "node.k8s.io", resources: "runtimeclasses"},
			{verbs: "get", groups: "resource.k8s.io", resources: "resourceclaims"},
			{verbs: "deletecollection", groups: "resource.k8s.io", resources: "resourceslices"},
			{
				verbs: read, groups: "certificates.k8s.io", resources: "clustertrustbundles",
				gate: features.ClusterTrustBundle,
			},
			{verbs: "get", groups: "core", resources: "serviceaccounts"},
			{
				verbs:     "create get list watch",
				groups:    "certificates.k8s.io",
				resources: "podcertificaterequests",
				gate:      features.PodCertificateRequest,
			},
		}},
		{name: "system:node-bootstrapper", rules: []rule{
			{
				verbs:     "create get list watch",
				groups:    "certificates.k8s.io",
				resources: "certificatesigningrequests",
			},
		}},
		{name: "system:node-problem-detector", rules: []rule{
			{verbs: "get", groups: "core", resources: "nodes"},
			{verbs: "patch", groups: "core", resources: "nodes/status"},
			events,
		}},
		{name: "system:node-proxier", rules: []rule{
			{verbs: "list watch", groups: "core", resources: "endpoints services"},
			{verbs: read, groups: "core", resources: "nodes"},
			events,
			{verbs: "list watch", groups: "networking.k8s.io", resources: "servicecidrs"},
			{verbs: "list watch", groups: "discovery.k8s.io", resources: "endpointslices"},
		}},
		{name: "system:persistent-volume-provisioner", rules: []rule{
			{verbs: "create delete get list watch", groups: "core", resources: "persistentvolumes"},
			{verbs: "get list update watch", groups: "core", resources: "persistentvolumeclaims"},
			{verbs: read, groups: "storage.k8s.io", resources: "storageclasses"},
			{verbs: "watch", groups: "core", resources: "events"},
			events,
		}},
		{name: "system:public-info-viewer", rules: []rule{
			{verbs: "get", urls: "/healthz /livez /readyz /version /version/"},
		}},
		{name: "system:service-account-issuer-discovery", rules: []rule{
			{
				verbs: "get",
				urls: "/.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks " +
					"/openid/v1/jwks/",
			},
		}},
		{name: "system:volume-scheduler", rules: []rule{
			{verbs: "get list patch update watch", groups: "core", resources: "persistentvolumes"},
			{verbs: read, groups: "storage.k8s.io", resources: "storageclasses"},
			{verbs: "get list patch update watch", groups: "core", resources: "persistentvolumeclaims"},
		}},
	}
}

// monitoringURLs returns what system:monitoring may read, sorted.
func monitoringURLs() string {
	urls := "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"
	if features.Enabled(zpages.ComponentFlagz) {
		urls = "/flagz " + urls
	}
	if features.Enabled(zpages.ComponentStatusz) {
		urls += " /statusz"
	}
	return urls
}
