use clap::Parser;

use super::*;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    args: SchedulerArgs,
}

fn is_pod_with(flags: &[&str], set: &[&str]) -> bool {
    let Command { args } = Command::parse_from([&["scheduler"], flags].concat());
    is_pod(&args, |variable| set.contains(&variable).then(OsString::new))
}

#[test]
fn a_pod_is_recognized_by_its_environment() {
    assert!(!is_pod_with(&[], &[]));
    assert!(is_pod_with(&[], &["KUBERNETES_SERVICE_HOST"]));
    assert!(is_pod_with(&["--kubeconfig", "/k"], &["POD_NAME", "KUBERNETES_SERVICE_HOST"]));
    assert!(!is_pod_with(&["--kubeconfig", "/k"], &["KUBERNETES_SERVICE_HOST"]));
    assert!(!is_pod_with(&[], &["KUBECONFIG", "KUBERNETES_SERVICE_HOST"]));
}

#[test]
fn a_server_on_all_addresses_is_reached_by_the_hosts_name() {
    let address = |text: &str| reachable_address(text.parse().unwrap(), "node-7");
    assert_eq!(address("127.0.0.1:22848"), "127.0.0.1:22848");
    assert_eq!(address("[::1]:22848"), "[::1]:22848");
    assert_eq!(address("0.0.0.0:9477"), "node-7:9477");
    assert_eq!(address("[::]:9477"), "node-7:9477");
}
