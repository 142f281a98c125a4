package example;

import static org.junit.jupiter.api.Assertions.assertTrue;

import org.junit.jupiter.api.Test;

class JobTest {
  @Test
  void jobCompletes() throws Exception {
    Cluster.kubectl("create", "job", "backup", "--image=backup", "--", "sleep", "1");
    String said = Cluster.kubectl("wait", "job/backup", "--for=condition=complete", "--timeout=50s");
    assertTrue(said.contains("condition met"), said);
  }
}
