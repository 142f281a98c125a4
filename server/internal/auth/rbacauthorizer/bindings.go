package rbacauthorizer

import "github.com/kinproc/kinproc/chain/features"

// clusterRoleBindings returns the cluster role bindings, except for the controllers'.
func clusterRoleBindings() []binding {
	return []binding{
		{name: "cluster-admin", subjects: "group:system:masters"},
		{name: "system:monitoring", subjects: "group:system:monitoring"},
		{name: "system:discovery", subjects: "group:system:authenticated"},
		{name: "system:basic-user", subjects: "group:system:authenticated"},
		{
			name:     "system:public-info-viewer",
			subjects: "group:system:authenticated group:system:unauthenticated",
		},
		{name: "system:node-proxier", subjects: "user:system:kube-proxy"},
		{name: "system:kube-controller-manager", subjects: "user:system:kube-controller-manager"},
		{name: "system:kube-dns", subjects: "account:kube-system/kube-dns"},
		{name: "system:kube-scheduler", subjects: "user:system:kube-scheduler"},
		{name: "system:volume-scheduler", subjects: "user:system:kube-scheduler"},
		{
			name:     "system:cluster-trust-bundle-discovery",
			subjects: "group:system:serviceaccounts",
			gate:     features.ClusterTrustBundle,
		},
		{name: "system:service-account-issuer-discovery", subjects: "group:system:serviceaccounts"},
		// Nodes get their permissions from the Node authorizer. The binding exists so that
		// administrators can add subjects to it.
		{name: "system:node"},
	}
}

// roles returns the namespaced roles.
func roles() []role {
	return []role{
		{namespace: "kube-system", name: "extension-apiserver-authentication-reader", rules: []rule{
			{
				verbs:     read,
				groups:    "core",
				resources: "configmaps",
				names:     "extension-apiserver-authentication",
			},
		}},
		{namespace: "kube-system", name: "system:controller:bootstrap-signer", rules: []rule{
			{verbs: read, groups: "core", resources: "secrets"},
		}},
		{namespace: "kube-system", name: "system:controller:cloud-provider", rules: []rule{
			{verbs: "create get list watch", groups: "core", resources: "configmaps"},
		}},
		{namespace: "kube-system", name: "system:controller:token-cleaner", rules: []rule{
			{verbs: "delete get list watch", groups: "core", resources: "secrets"},
			events,
		}},
		{
			namespace: "kube-system",
			name:      "system::leader-locking-kube-controller-manager",
			rules:     leaderElection(),
		},
		{
			namespace: "kube-system",
			name:      "system::leader-locking-kube-scheduler",
			rules:     leaderElection(),
		},
		{namespace: "kube-public", name: "system:controller:bootstrap-signer", rules: []rule{
			{verbs: read, groups: "core", resources: "configmaps"},
			{verbs: "update", groups: "core", resources: "configmaps", names: "cluster-info"},
			events,
		}},
	}
}

func leaderElection() []rule {
	return []rule{
		{verbs: "create get list update watch", groups: "coordination.k8s.io", resources: "leases"},
		{
			verbs:     "create get list update watch",
			groups:    "coordination.k8s.io",
			resources: "leasecandidates",
		},
	}
}

func roleBindings() []binding {
	return []binding{
		{
			namespace: "kube-system",
			name:      "system::extension-apiserver-authentication-reader",
			role:      "extension-apiserver-authentication-reader",
			subjects:  "user:system:kube-controller-manager user:system:kube-scheduler",
		},
		{
			namespace: "kube-system",
			name:      "system:controller:bootstrap-signer",
			subjects:  "account:kube-system/bootstrap-signer",
		},
		{
			namespace: "kube-system",
			name:      "system:controller:cloud-provider",
			subjects:  "account:kube-system/cloud-provider",
		},
		{
			namespace: "kube-system",
			name:      "system:controller:token-cleaner",
			subjects:  "account:kube-system/token-cleaner",
		},
		{
			namespace: "kube-system", name: "system::leader-locking-kube-controller-manager",
			subjects: "user:system:kube-controller-manager account:kube-system/kube-controller-manager " +
				"account:kube-system/leader-election-controller",
		},
		{
			namespace: "kube-system", name: "system::leader-locking-kube-scheduler",
			subjects: "user:system:kube-scheduler account:kube-system/kube-scheduler",
		},
		{
			namespace: "kube-public",
			name:      "system:controller:bootstrap-signer",
			subjects:  "account:kube-system/bootstrap-signer",
		},
	}
}
