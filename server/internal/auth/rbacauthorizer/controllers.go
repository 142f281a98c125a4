package rbacauthorizer

import "github.com/kinproc/kinproc/chain/features"

// controllers returns the roles of kube-controller-manager's controllers, each of which runs as a
// separate service account in kube-system. The name of a cluster role is system:controller:
// followed by the name of the service account.
func controllers() []role {
	return []role{
		{name: "attachdetach-controller", rules: []rule{
			{verbs: "list watch", groups: "core", resources: "persistentvolumeclaims persistentvolumes"},
			{verbs: read, groups: "core", resources: "nodes"},
			{verbs: "patch update", groups: "core", resources: "nodes/status"},
			{verbs: "list watch", groups: "core", resources: "pods"},
			events,
			{
				verbs:     "create delete get list watch",
				groups:    "storage.k8s.io",
				resources: "volumeattachments",
			},
			{verbs: read, groups: "storage.k8s.io", resources: "csidrivers"},
			{verbs: read, groups: "storage.k8s.io", resources: "csinodes"},
		}},
		{name: "certificate-controller", rules: []rule{
			{
				verbs:     "delete get list watch",
				groups:    "certificates.k8s.io",
				resources: "certificatesigningrequests",
			},
			{
				verbs:     "update",
				groups:    "certificates.k8s.io",
				resources: "certificatesigningrequests/approval certificatesigningrequests/status",
			},
			{
				verbs:     "approve",
				groups:    "certificates.k8s.io",
				resources: "signers",
				names:     "kubernetes.io/kube-apiserver-client-kubelet",
			},
			{
				verbs:     "sign",
				groups:    "certificates.k8s.io",
				resources: "signers",
				names: "kubernetes.io/kube-apiserver-client " +
					"kubernetes.io/kube-apiserver-client-kubelet kubernetes.io/kubelet-serving " +
					"kubernetes.io/legacy-unknown",
			},
			{verbs: "create", groups: "authorization.k8s.io", resources: "subjectaccessreviews"},
			events,
		}},
		{name: "clusterrole-aggregation-controller", rules: []rule{
			{
				verbs:     "escalate get list patch update watch",
				groups:    "rbac.authorization.k8s.io",
				resources: "clusterroles",
			},
		}},
		{name: "cronjob-controller", rules: []rule{
			{verbs: "get list update watch", groups: "batch", resources: "cronjobs"},
			{verbs: "create delete get list patch update watch", groups: "batch", resources: "jobs"},
			{verbs: "update", groups: "batch", resources: "cronjobs/status"},
			{verbs: "update", groups: "batch", resources: "cronjobs/finalizers"},
			{verbs: "delete list watch", groups: "core", resources: "pods"},
			events,
		}},
		{name: "daemon-set-controller", rules: []rule{
			{verbs: read, groups: "apps extensions", resources: "daemonsets"},
			{verbs: "update", groups: "apps extensions", resources: "daemonsets/status"},
			{verbs: "update", groups: "apps extensions", resources: "daemonsets/finalizers"},
			{verbs: "list watch", groups: "core", resources: "nodes"},
			{verbs: "create delete list patch watch", groups: "core", resources: "pods"},
			{verbs: "create", groups: "core", resources: "pods/binding"},
			{
				verbs:     "create delete get list patch update watch",
				groups:    "apps",
				resources: "controllerrevisions",
			},
			events,
		}},
		{name: "deployment-controller", rules: []rule{
			{verbs: "get list update watch", groups: "apps extensions", resources: "deployments"},
			{verbs: "update", groups: "apps extensions", resources: "deployments/status"},
			{verbs: "update", groups: "apps extensions", resources: "deployments/finalizers"},
			{
				verbs:     "create delete get list patch update watch",
				groups:    "apps extensions",
				resources: "replicasets",
			},
			{verbs: "get list update watch", groups: "core", resources: "pods"},
			events,
		}},
		{name: "device-taint-eviction-controller", gate: features.DRADeviceTaints, rules: []rule{
			{verbs: "delete get list watch", groups: "core", resources: "pods"},
			{verbs: "patch update", groups: "core", resources: "pods/status"},
			{verbs: read, groups: "resource.k8s.io", resources: "resourceclaims"},
			{verbs: read, groups: "resource.k8s.io", resources: "resourceslices"},
			{verbs: read, groups: "resource.k8s.io", resources: "deviceclasses"},
			events,
			{
				verbs: "patch update", groups: "resource.k8s.io", resources: "devicetaintrules/status",
				gate: features.DRADeviceTaintRules,
			},
			{
				verbs: read, groups: "resource.k8s.io", resources: "devicetaintrules",
				gate: features.DRADeviceTaintRules,
			},
		}},
		{name: "disruption-controller", rules: []rule{
			{verbs: read, groups: "apps extensions", resources: "deployments"},
			{verbs: read, groups: "apps extensions", resources: "replicasets"},
			{verbs: read, groups: "core", resources: "replicationcontrollers"},
			{verbs: read, groups: "policy", resources: "poddisruptionbudgets"},
			{verbs: read, groups: "apps", resources: "statefulsets"},
			{verbs: "update", groups: "policy", resources: "poddisruptionbudgets/status"},
			{verbs: "patch update", groups: "core", resources: "pods/status"},
			{verbs: "get", groups: "*", resources: "*/scale"},
			events,
		}},
		{name: "endpoint-controller", rules: []rule{
			{verbs: read, groups: "core", resources: "pods services"},
			{verbs: "create delete get list update watch", groups: "core", resources: "endpoints"},
			{verbs: "create", groups: "core", resources: "endpoints/restricted"},
			events,
		}},
		{name: "endpointslice-controller", rules: []rule{
			{verbs: read, groups: "core", resources: "nodes pods services"},
			{verbs: "update", groups: "core", resources: "services/finalizers"},
			{
				verbs:     "create delete get list update watch",
				groups:    "discovery.k8s.io",
				resources: "endpointslices",
			},
			events,
		}},
		{name: "endpointslicemirroring-controller", rules: []rule{
			{verbs: read, groups: "core", resources: "endpoints services"},
			{verbs: "update", groups: "core", resources: "services/finalizers"},
			{verbs: "update", groups: "core", resources: "endpoints/finalizers"},
			{
				verbs:     "create delete get list update watch",
				groups:    "discovery.k8s.io",
				resources: "endpointslices",
			},
			events,
		}},
		{name: "ephemeral-volume-controller", rules: []rule{
			{verbs: read, groups: "core", resources: "pods"},
			{verbs: "update", groups: "core", resources: "pods/finalizers"},
			{verbs: "create get list watch", groups: "core", resources: "persistentvolumeclaims"},
			events,
		}},
		{name: "expand-controller", rules: []rule{
			{verbs: "get list patch update watch", groups: "core", resources: "persistentvolumes"},
			{verbs: "patch update", groups: "core", resources: "persistentvolumeclaims/status"},
			{verbs: read, groups: "core", resources: "persistentvolumeclaims"},
			events,
		}},
		{name: "generic-garbage-collector", rules: []rule{
			{verbs: "delete get list patch update watch", groups: "*", resources: "*"},
			events,
		}},
		{name: "horizontal-pod-autoscaler", rules: []rule{
			{verbs: read, groups: "autoscaling", resources: "horizontalpodautoscalers"},
			{verbs: "update", groups: "autoscaling", resources: "horizontalpodautoscalers/status"},
			{verbs: "get update", groups: "*", resources: "*/scale"},
			{verbs: "list watch", groups: "core", resources: "pods"},
			{verbs: "list watch", groups: "metrics.k8s.io", resources: "pods"},
			{verbs: read, groups: "custom.metrics.k8s.io", resources: "*"},
			{verbs: read, groups: "external.metrics.k8s.io", resources: "*"},
			events,
		}},
		{name: "job-controller", rules: []rule{
			{verbs: "get list patch update watch", groups: "batch", resources: "jobs"},
			{verbs: "update", groups: "batch", resources: "jobs/status"},
			{verbs: "update", groups: "batch", resources: "jobs/finalizers"},
			{verbs: "create delete list patch watch", groups: "core", resources: "pods"},
			events,
		}},
		{
			name: "kube-apiserver-serving-clustertrustbundle-publisher",
			gate: features.ClusterTrustBundle,
			rules: []rule{
				{
					verbs:     "attest",
					groups:    "certificates.k8s.io",
					resources: "signers",
					names:     "kubernetes.io/kube-apiserver-serving",
				},
				{
					verbs:     "create delete list update watch",
					groups:    "certificates.k8s.io",
					resources: "clustertrustbundles",
				},
				events,
			},
		},
		{name: "legacy-service-account-token-cleaner", rules: []rule{
			{
				verbs:     "get",
				groups:    "core",
				resources: "configmaps",
				names:     "kube-apiserver-legacy-service-account-token-tracking",
			},
			{verbs: "delete patch", groups: "core", resources: "secrets"},
		}},
		{name: "namespace-controller", rules: []rule{
			{verbs: "delete get list watch", groups: "core", resources: "namespaces"},
			{verbs: "update", groups: "core", resources: "namespaces/finalize namespaces/status"},
			{verbs: "delete deletecollection get list watch", groups: "*", resources: "*"},
		}},
		{name: "node-controller", rules: []rule{
			{verbs: "delete get list patch update watch", groups: "core", resources: "nodes"},
			{verbs: "patch update", groups: "core", resources: "nodes/status"},
			{verbs: "patch update", groups: "core", resources: "pods/status"},
			{verbs: "delete get list watch", groups: "core", resources: "pods"},
			{verbs: read, groups: "coordination.k8s.io", resources: "leases"},
			events,
		}},
		{name: "persistent-volume-binder", rules: []rule{
			{verbs: "create delete get list update watch", groups: "core", resources: "persistentvolumes"},
			{verbs: "update", groups: "core", resources: "persistentvolumes/status"},
			{verbs: "get list update watch", groups: "core", resources: "persistentvolumeclaims"},
			{verbs: "update", groups: "core", resources: "persistentvolumeclaims/status"},
			{verbs: "create delete get list watch", groups: "core", resources: "pods"},
			{verbs: read, groups: "storage.k8s.io", resources: "storageclasses"},
			{verbs: "list watch", groups: "core", resources: "nodes"},
			events,
			{verbs: "watch", groups: "core", resources: "events"},
		}},
		{name: "pod-garbage-collector", rules: []rule{
			{verbs: "delete list watch", groups: "core", resources: "pods"},
			{verbs: read, groups: "core", resources: "nodes"},
			{verbs: "patch", groups: "core", resources: "pods/status"},
		}},
		{name: "podcertificaterequestcleaner", gate: features.PodCertificateRequest, rules: []rule{
			{
				verbs:     "delete get list watch",
				groups:    "certificates.k8s.io",
				resources: "podcertificaterequests",
			},
		}},
		{name: "pv-protection-controller", rules: []rule{
			{verbs: "get list update watch", groups: "core", resources: "persistentvolumes"},
			events,
		}},
		{name: "pvc-protection-controller", rules: []rule{
			{verbs: "get list update watch", groups: "core", resources: "persistentvolumeclaims"},
			{verbs: "update", groups: "core", resources: "persistentvolumeclaims/status"},
			{verbs: read, groups: "core", resources: "pods"},
			events,
		}},
		{name: "replicaset-controller", rules: []rule{
			{verbs: "get list update watch", groups: "apps extensions", resources: "replicasets"},
			{verbs: "update", groups: "apps extensions", resources: "replicasets/status"},
			{verbs: "update", groups: "apps extensions", resources: "replicasets/finalizers"},
			{verbs: "create delete list patch watch", groups: "core", resources: "pods"},
			events,
		}},
		{name: "replication-controller", rules: []rule{
			{verbs: "get list update watch", groups: "core", resources: "replicationcontrollers"},
			{verbs: "update", groups: "core", resources: "replicationcontrollers/status"},
			{verbs: "update", groups: "core", resources: "replicationcontrollers/finalizers"},
			{verbs: "create delete list patch watch", groups: "core", resources: "pods"},
			events,
		}},
		{name: "resource-claim-controller", rules: []rule{
			{verbs: read, groups: "core", resources: "pods"},
			{verbs: "update", groups: "core", resources: "pods/finalizers"},
			{verbs: "create delete get list watch", groups: "resource.k8s.io", resources: "resourceclaims"},
			{
				verbs:     "patch update",
				groups:    "resource.k8s.io",
				resources: "resourceclaims resourceclaims/status",
			},
			{verbs: "patch update", groups: "core", resources: "pods/status"},
			events,
			{
				verbs: "patch update", groups: "resource.k8s.io", resources: "resourceclaims/binding",
				gate: features.DRAResourceClaimGranularStatusAuthorization,
			},
		}},
		{name: "resourcequota-controller", rules: []rule{
			{verbs: "list watch", groups: "*", resources: "*"},
			{verbs: "update", groups: "core", resources: "resourcequotas/status"},
			events,
		}},
		{name: "root-ca-cert-publisher", rules: []rule{
			{verbs: "create update", groups: "core", resources: "configmaps"},
			events,
		}},
		{name: "route-controller", rules: []rule{
			{verbs: "list watch", groups: "core", resources: "nodes"},
			{verbs: "patch", groups: "core", resources: "nodes/status"},
			events,
		}},
		{name: "selinux-warning-controller", rules: []rule{
			events,
			{verbs: read, groups: "core", resources: "persistentvolumes"},
			{verbs: read, groups: "core", resources: "persistentvolumeclaims"},
			{verbs: read, groups: "core", resources: "pods"},
			{verbs: read, groups: "storage.k8s.io", resources: "csidrivers"},
		}},
		{name: "service-account-controller", rules: []rule{
			{verbs: "create", groups: "core", resources: "serviceaccounts"},
			events,
		}},
		{name: "service-cidrs-controller", rules: []rule{
			{verbs: "get list patch update watch", groups: "networking.k8s.io", resources: "servicecidrs"},
			{verbs: "patch update", groups: "networking.k8s.io", resources: "servicecidrs/finalizers"},
			{verbs: "patch update", groups: "networking.k8s.io", resources: "servicecidrs/status"},
			{verbs: read, groups: "networking.k8s.io", resources: "ipaddresses"},
			events,
		}},
		{name: "service-controller", rules: []rule{
			{verbs: read, groups: "core", resources: "services"},
			{verbs: "patch update", groups: "core", resources: "services/status"},
			{verbs: "list watch", groups: "core", resources: "nodes"},
			events,
		}},
		{name: "statefulset-controller", rules: []rule{
			{verbs: "list watch", groups: "core", resources: "pods"},
			{verbs: read, groups: "apps", resources: "statefulsets"},
			{verbs: "update", groups: "apps", resources: "statefulsets/status"},
			{verbs: "update", groups: "apps", resources: "statefulsets/finalizers"},
			{verbs: "create delete get patch update", groups: "core", resources: "pods"},
			{
				verbs:     "create delete get list patch update watch",
				groups:    "apps",
				resources: "controllerrevisions",
			},
			{verbs: "create get list watch", groups: "core", resources: "persistentvolumeclaims"},
			{verbs: "delete update", groups: "core", resources: "persistentvolumeclaims"},
			{verbs: "update", groups: "core", resources: "pods/finalizers"},
			events,
		}},
		{
			name: "storage-version-migrator-controller", gate: features.StorageVersionMigrator,
			rules: []rule{
				{verbs: "list patch", groups: "*", resources: "*"},
				{verbs: "get", groups: "apiextensions.k8s.io", resources: "customresourcedefinitions"},
				{
					verbs:     "patch",
					groups:    "apiextensions.k8s.io",
					resources: "customresourcedefinitions/status",
				},
				{
					verbs:     "update",
					groups:    "storagemigration.k8s.io",
					resources: "storageversionmigrations/status",
				},
			},
		},
		{name: "ttl-after-finished-controller", rules: []rule{
			{verbs: "delete get list watch", groups: "batch", resources: "jobs"},
			events,
		}},
		{name: "ttl-controller", rules: []rule{
			{verbs: "list patch update watch", groups: "core", resources: "nodes"},
			events,
		}},
		{name: "validatingadmissionpolicy-status-controller", rules: []rule{
			{verbs: read, groups: "admissionregistration.k8s.io", resources: "validatingadmissionpolicies"},
			{
				verbs:     "get patch update",
				groups:    "admissionregistration.k8s.io",
				resources: "validatingadmissionpolicies/status",
			},
			events,
		}},
		{name: "volumeattributesclass-protection-controller", rules: []rule{
			{verbs: read, groups: "core", resources: "persistentvolumeclaims"},
			{verbs: read, groups: "core", resources: "persistentvolumes"},
			{verbs: "get list update watch", groups: "storage.k8s.io", resources: "volumeattributesclasses"},
			events,
		}},
	}
}
