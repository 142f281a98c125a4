package example;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/** The control plane that belongs to this worker alone. */
final class Cluster {
  private Cluster() {}

  static String kubeconfig() {
    String own = System.getenv("KUBECONFIG_" + System.getProperty("worker", "1"));
    return own != null ? own : System.getenv("KUBECONFIG");
  }

  /** Runs kubectl and returns what it prints. */
  static String kubectl(String... args) throws IOException, InterruptedException {
    String program = System.getenv().getOrDefault("KUBECTL", "kubectl");
    List<String> command = new ArrayList<>(List.of(program.split(" ")));
    command.add("--kubeconfig=" + kubeconfig());
    command.addAll(List.of(args));
    Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(process.getInputStream().readAllBytes());
    if (process.waitFor() != 0) {
      throw new IOException(String.join(" ", command) + ": " + said);
    }
    return said;
  }
}
