package example;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class RolloutTest {
  @Test
  void podsBecomeReady() throws Exception {
    Cluster.kubectl("create", "deployment", "web", "--image=web:1", "--replicas=3");
    String said = Cluster.kubectl("rollout", "status", "deployment/web", "--timeout=60s");
    assertTrue(said.contains("successfully rolled out"), said);
  }
}
