// Package certificates declares the kinds of certificates.k8s.io: certificate signing requests,
// cluster trust bundles, and the pod certificate requests that kubelets make.
//
// The server records the requestor in a new certificate signing request, and the spec is immutable
// afterwards. An update of the main resource changes only metadata, the approval subresource
// approves or denies the request, and the status subresource sets the certificate.
package certificates
