// Package node decides what kubelets may do: what the role system:node says, but of objects that belong to nodes only their own, and of
// secrets, config maps, claims, volumes and the tokens of service accounts only those of their pods.
package nodeauthorizer
