// Package certificates declares the kinds of certificates.k8s.io: certificate signing requests, cluster trust bundles, and the requests
// that kubelets make for pods.
//
// Who asks for a certificate is written into a certificate signing request by the server. From then on its spec is fixed: the main
// resource changes nothing but metadata, the subresource approval decides, the subresource status delivers the certificate.
package certificates
