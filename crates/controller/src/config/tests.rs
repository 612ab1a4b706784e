use super::*;

fn read(text: &str) -> Result<Config, ConfigError> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    Config::read(Some(file.path()), Some("from-pod"))
}

#[test]
fn missing_keys_have_defaults_and_the_namespace_is_the_pods() {
    let config = read("daemon: {image: example.com/octavo}\n").unwrap();
    assert_eq!(config.namespace, "from-pod");
    assert_eq!(config.max_nodes_per_imex_domain, 18);
    assert_eq!(config.daemon.command, ["octavo", "imex-daemon"]);
    assert_eq!(config.daemon.resources.requests, config.daemon.resources.limits);
    let lease = config.lease("me", None);
    assert_eq!((lease.namespace.as_str(), lease.name.as_str()), ("from-pod", "octavo-controller"));
    let config = read("{namespace: other, daemon: {image: a}}").unwrap();
    assert_eq!(config.namespace, "other");
}

#[test]
fn all_keys_are_read_and_unknown_ones_are_errors() {
    let text = "
namespace: gpu
maxNodesPerImexDomain: 4
imex: {mode: driverManaged, isolation: channel}
daemon:
  image: a
  imagePullPolicy: Always
  imagePullSecrets: [{name: pull}]
  resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}
  logLevel: debug
  serviceAccountName: sa
  command: [imex]
  priorityClassName: high
health: {enabled: true, repair: {afterSeconds: 90, schedulerName: gpus}}
leaderElection: {enabled: false, namespace: n, name: l, leaseSeconds: 3, renewDeadlineSeconds: 2, retrySeconds: 1}
";
    let config = read(text).unwrap();
    assert_eq!(config.daemon.image_pull_secrets[0].name, "pull");
    assert_eq!(config.daemon.resources.requests["cpu"], "1");
    assert!(!config.leader_election.enabled);
    let repair = config.health.repair.as_ref().unwrap();
    assert_eq!((repair.after_seconds, &*repair.scheduler_name), (90, "gpus"));
    assert_eq!(config.services(), ImexServices::PerClique);
    let error = read("daemon: {image: a, imagee: b}").unwrap_err().to_string();
    assert!(error.contains("imagee"), "{error}");
}

#[test]
fn errors_name_the_setting() {
    for (text, wanted) in [
        ("namespace: a", "daemon.image"),
        ("daemon: {image: a, command: []}", "daemon.command"),
        ("{daemon: {image: a}, maxNodesPerImexDomain: 0}", "maxNodesPerImexDomain"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
    let error = Config::read(None, None).unwrap_err().to_string();
    assert!(error.contains("POD_NAMESPACE"), "{error}");
}

#[test]
fn the_services_are_per_domain_unless_the_file_says_otherwise() {
    assert_eq!(read("daemon: {image: a}").unwrap().services(), ImexServices::PerDomain);
    // The hosts' services need no image.
    assert_eq!(read("imex: {mode: hostManaged}").unwrap().services(), ImexServices::OfHost);
    let error = read("imex: {mode: hostManaged, isolation: channel}").unwrap_err().to_string();
    assert!(error.contains("imex.isolation"), "{error}");
    for text in ["imex: {mode: host}", "imex: {hostSocketPath: /s}"] {
        assert!(matches!(read(text), Err(ConfigError::Invalid { .. })), "{text}");
    }
}

#[test]
fn the_webhook_may_be_all_that_is_served() {
    let hosts = "hosts: [webhook.octavo.svc]";
    let models = "models: [{productName: NVIDIA L4, memory: 23034Mi}]";
    let text =
        format!("{{computeDomains: false, translation: {{enabled: true, {hosts}, {models}}}}}");
    let translation = read(&text).unwrap().translation;
    assert_eq!((translation.collect_after_seconds, translation.drain_seconds), (3600, 5));
    assert_eq!(translation.models().unwrap()[0].memory_mib, 23034);
    assert_eq!(translation.address().unwrap().port(), 9443);
    for (text, wanted) in [
        ("computeDomains: false".to_owned(), "nothing to do"),
        ("{daemon: {image: a}, translation: {enabled: true}}".to_owned(), "translation.hosts"),
        (
            format!("{{daemon: {{image: a}}, translation: {{enabled: true, {hosts}, listen: x}}}}"),
            "translation.listen",
        ),
        (
            format!(
                "{{daemon: {{image: a}}, translation: {{enabled: true, {hosts}, collectAfterSeconds: 0}}}}"
            ),
            "translation.collectAfterSeconds",
        ),
        (
            "{daemon: {image: a}, translation: {models: [{productName: a, memory: much}]}}"
                .to_owned(),
            "translation.models",
        ),
    ] {
        let error = read(&text).unwrap_err().to_string();
        assert!(error.contains(wanted), "{text}: {error}");
    }
}
