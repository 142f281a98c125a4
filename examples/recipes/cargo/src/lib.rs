//! The control plane of this worker.

use std::env;
use std::io::Write;
use std::process::{Command, Stdio};

/// Returns the kubeconfig of the control plane that belongs to this worker alone.
///
/// The workers of cargo-nextest are processes with numbers. Those of `cargo test` are threads,
/// which share a control plane: give each test a namespace of its own there.
pub fn kubeconfig() -> String {
    let slot = env::var("NEXTEST_TEST_GLOBAL_SLOT").ok();
    let worker = slot.and_then(|s| s.parse::<u32>().ok()).unwrap_or(0) + 1;
    env::var(format!("KUBECONFIG_{worker}"))
        .or_else(|_| env::var("KUBECONFIG"))
        .expect("run the tests with kinproc exec")
}

/// Runs kubectl with some input, and returns what it prints.
pub fn kubectl(args: &[&str], input: &str) -> String {
    let command = env::var("KUBECTL").unwrap_or("kubectl".into());
    let mut words = command.split(' ');
    let mut child = Command::new(words.next().unwrap())
        .args(words)
        .arg(format!("--kubeconfig={}", kubeconfig()))
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).expect("kubectl reads");
    drop(stdin);
    let output = child.wait_with_output().expect("kubectl ends");
    assert!(output.status.success(), "kubectl {args:?} failed");
    String::from_utf8(output.stdout).expect("kubectl prints text")
}
