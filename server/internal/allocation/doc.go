// Package allocation allocates cluster IPs and node ports to services in the same way as
// kube-apiserver since 1.33 (KEP-1880), so that both can allocate from one etcd.
//
// A cluster IP is reserved by creating the IPAddress that is named after it, from a block of a
// ServiceCIDR. A node port is reserved by setting its bit in the RangeAllocation at
// /registry/ranges/servicenodeports. Each reservation is a single write to etcd, which resolves
// conflicts between servers. Nothing is kept in memory but the last bitmap seen, and nothing runs
// in the background.
package allocation
