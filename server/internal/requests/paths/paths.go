// Package paths has the non-resource URLs that the server has in addition to those of
// kube-apiserver, for the server and for its clients.
package paths

// Snapshots are transferred at these two URLs. Like every request, they pass authentication,
// authorization and the audit log. RBAC permits them to nobody but members of system:masters,
// unless a role names the URLs, with the verbs get and post. Whoever may use them reads all
// secrets, and may become anybody.
const (
	Snapshot = "/kinproc/v1/snapshot"
	Reset    = "/kinproc/v1/reset"
)

// A request for a snapshot may name the revision, by its number or by a time in the form of RFC
// 3339: the newest revision that was written then or before.
const (
	RevisionParameter = "revision"
	TimeParameter     = "time"
)

// Database says how full etcd's database is, for those who may get the URL.
const Database = "/kinproc/v1/database"
