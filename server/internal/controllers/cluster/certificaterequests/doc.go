// Package certificaterequests has the controllers of CertificateSigningRequests: one approves the
// requests of kubelets, one signs approved requests, and one deletes old requests.
//
// The rules are those of kube-controller-manager.
package certificaterequests
