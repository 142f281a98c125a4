package example;

import static org.junit.jupiter.api.Assertions.assertEquals;

import io.fabric8.kubernetes.api.model.apps.Deployment;
import io.fabric8.kubernetes.api.model.apps.DeploymentBuilder;
import io.fabric8.kubernetes.client.Config;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import java.io.File;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

class RolloutTest {
  /** The client of the control plane that belongs to this worker alone. */
  private static KubernetesClient client() {
    String own = System.getenv("KUBECONFIG_" + System.getProperty("worker", "1"));
    File kubeconfig = new File(own != null ? own : System.getenv("KUBECONFIG"));
    return new KubernetesClientBuilder().withConfig(Config.fromKubeconfig(kubeconfig)).build();
  }

  @Test
  void podsBecomeReady() {
    Map<String, String> labels = Map.of("app", "web");
    Deployment web =
        new DeploymentBuilder()
            .withNewMetadata().withName("web").withNamespace("default").endMetadata()
            .withNewSpec()
            .withReplicas(3)
            .withNewSelector().withMatchLabels(labels).endSelector()
            .withNewTemplate()
            .withNewMetadata().withLabels(labels).endMetadata()
            .withNewSpec()
            .addNewContainer().withName("web").withImage("web:1").endContainer()
            .endSpec()
            .endTemplate()
            .endSpec()
            .build();
    try (KubernetesClient client = client()) {
      client.resource(web).create();
      Deployment ready = client.resource(web).waitUntilReady(60, TimeUnit.SECONDS);
      assertEquals(3, ready.getStatus().getReadyReplicas());
    }
  }
}
