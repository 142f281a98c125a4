// Package allocation gives services their cluster IPs and node ports, as kube-apiserver does since 1.33 (KEP-1880), so that both can
// allocate from one etcd.
//
// A cluster IP is taken by creating the IPAddress that is named after it, out of the blocks that the ServiceCIDRs name. A node port is
// taken by setting its bit in the RangeAllocation at /registry/ranges/servicenodeports. Both are single writes to etcd, which decides
// between rivals; nothing is kept in memory but the last bitmap seen, and nothing runs in the background.
package allocation
