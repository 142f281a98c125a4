// Package certificates declares the kinds of certificates.k8s.io: certificate signing requests, and, off by default, cluster trust bundles.
//
// Who asks for a certificate is written into the request by the server. From then on its spec is fixed: the main resource changes nothing
// but metadata, the subresource approval decides, the subresource status delivers the certificate.
package certificates
