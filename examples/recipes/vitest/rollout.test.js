import { AppsV1Api, KubeConfig } from '@kubernetes/client-node';
import { expect, test, vi } from 'vitest';

function client() {
  const config = new KubeConfig();
  config.loadFromFile(process.env.KUBECONFIG);
  return config.makeApiClient(AppsV1Api);
}

test('pods become ready', async () => {
  const apps = client();
  const labels = { app: 'web' };
  await apps.createNamespacedDeployment({
    namespace: 'default',
    body: {
      metadata: { name: 'web' },
      spec: {
        replicas: 3,
        selector: { matchLabels: labels },
        template: {
          metadata: { labels },
          spec: { containers: [{ name: 'web', image: 'web:1' }] },
        },
      },
    },
  });
  await vi.waitFor(async () => {
    const { status } = await apps.readNamespacedDeployment({ name: 'web', namespace: 'default' });
    expect(status.readyReplicas).toBe(3);
  }, { timeout: 50_000, interval: 50 });
});
