// Package nodeauthorizer authorizes requests of kubelets. A kubelet has the permissions of the role
// system:node, with two restrictions: it can access only its own node-related objects, and only the
// secrets, config maps, claims, volumes and service account tokens that its pods use.
package nodeauthorizer
