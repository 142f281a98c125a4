use rollout::kubectl;

const WEB: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "web:1"}
"#;

#[test]
fn pods_become_ready() {
    kubectl(&["apply", "-f", "-"], WEB);
    let said = kubectl(&["rollout", "status", "deployment/web", "--timeout=60s"], "");
    assert!(said.contains("successfully rolled out"), "{said}");
}
