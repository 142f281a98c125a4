// Each worker has the control plane of its number.
const own = process.env[`KUBECONFIG_${process.env.VITEST_POOL_ID}`];
if (own) {
  process.env.KUBECONFIG = own;
}
