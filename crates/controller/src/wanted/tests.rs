use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::resource::v1::ResourceClaimTemplate;
use octavo_api::names::ANNOTATION_READY_WHEN;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::*;
use crate::config::PullSecret;

fn domain() -> Domain {
    Domain {
        uid: "0d3b9a2e".to_owned(),
        namespace: "team".to_owned(),
        name: "train".to_owned(),
        template: "train-channel".to_owned(),
        ..Domain::default()
    }
}

fn config() -> Config {
    let mut config = Config { namespace: "octavo".to_owned(), ..Config::default() };
    config.daemon.image = "example.com/octavo:1".to_owned();
    config
}

/// No field is lost in the API's types.
fn is_whole<K: DeserializeOwned + Serialize>(object: &Value) {
    let typed: K = serde_json::from_value(object.clone()).unwrap();
    assert_eq!(serde_json::to_value(&typed).unwrap(), *object);
}

#[test]
fn objects_are_of_the_api() {
    let mut config = config();
    is_whole::<ResourceClaimTemplate>(&workload_template(&domain()));
    is_whole::<ResourceClaimTemplate>(&daemon_template(DaemonsOf::Domain(&domain()), &config));
    is_whole::<DaemonSet>(&daemon_set(DaemonsOf::Domain(&domain()), &config));
    config.daemon.image_pull_policy = "Always".to_owned();
    config.daemon.image_pull_secrets = vec![PullSecret { name: "pull".to_owned() }];
    config.daemon.priority_class_name = String::new();
    let set = daemon_set(DaemonsOf::Domain(&domain()), &config);
    is_whole::<DaemonSet>(&set);
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["imagePullSecrets"], json!([{"name": "pull"}]));
    assert!(pod.get("priorityClassName").is_none());
    is_whole::<ComputeDomainClique>(&clique("0d3b9a2e", "c.1", &config));
}

#[test]
fn claims_name_their_domain_by_uid_and_by_name() {
    let template = workload_template(&domain());
    assert_eq!(template["metadata"]["namespace"], "team");
    assert_eq!(template["metadata"]["name"], "train-channel");
    assert_eq!(template["metadata"]["labels"][LABEL_COMPUTE_DOMAIN_TARGET], "Workload");
    let claim = &template["spec"];
    assert_eq!(claim["metadata"]["annotations"][ANNOTATION_COMPUTE_DOMAIN], "team/train");
    assert_eq!(claim["metadata"]["labels"][LABEL_COMPUTE_DOMAIN], "0d3b9a2e");
    let devices = &claim["spec"]["devices"];
    assert_eq!(devices["requests"][0]["exactly"], json!({"deviceClassName": CLASS_CHANNEL}));
    let parameters = &devices["config"][0]["opaque"]["parameters"];
    assert_eq!(parameters["domainID"], "0d3b9a2e");
    assert_eq!(parameters["allocationMode"], "Single");
    let all = Domain { allocation_mode: ComputeDomainAllocationMode::All, ..domain() };
    let parameters =
        &workload_template(&all)["spec"]["spec"]["devices"]["config"][0]["opaque"]["parameters"];
    assert_eq!(parameters["allocationMode"], "All");
    let daemons = daemon_template(DaemonsOf::Domain(&domain()), &config());
    let request = &daemons["spec"]["spec"]["devices"]["requests"][0];
    assert_eq!(
        request["exactly"]["tolerations"],
        json!([{"key": TAINT_OWNER, "operator": "Exists"}])
    );
    assert_eq!(daemons["metadata"]["namespace"], "octavo");
    assert!(!daemons.to_string().contains(ANNOTATION_READY_WHEN));
}

#[test]
fn configs_are_those_that_the_agent_decodes() {
    let parse = |_: &str| Err("none".to_owned());
    let uid = "0d3b9a2e-8a39-4a3c-9d0c-6d1f6b1a2c3d".to_owned();
    let domain = Domain { uid, ..domain() };
    for template in
        [workload_template(&domain), daemon_template(DaemonsOf::Domain(&domain), &config())]
    {
        let parameters = &template["spec"]["spec"]["devices"]["config"][0]["opaque"]["parameters"];
        octavo_api::config::decode(parameters, parse).unwrap();
    }
}

#[test]
fn the_daemons_pod_is_that_of_the_design() {
    let set = daemon_set(DaemonsOf::Domain(&domain()), &config());
    assert_eq!(set["spec"]["updateStrategy"]["type"], "OnDelete");
    assert_eq!(set["spec"]["selector"]["matchLabels"], json!({LABEL_COMPUTE_DOMAIN: "0d3b9a2e"}));
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["nodeSelector"], json!({LABEL_COMPUTE_DOMAIN: "0d3b9a2e"}));
    assert_eq!(pod["resourceClaims"][0]["resourceClaimTemplateName"], daemon_name("0d3b9a2e"));
    assert_eq!(pod["tolerations"].as_array().unwrap().len(), 3);
    let container = &pod["containers"][0];
    assert_eq!(container["args"], json!(["run"]));
    let check = json!({"command": ["octavo", "imex-daemon", "check"]});
    for probe in ["startupProbe", "readinessProbe", "livenessProbe"] {
        assert_eq!(container[probe]["exec"], check);
    }
    let names: Vec<&str> =
        container["env"].as_array().unwrap().iter().filter_map(|it| it["name"].as_str()).collect();
    for name in [
        "NODE_NAME",
        "POD_IP",
        "POD_NAME",
        "POD_NAMESPACE",
        "MAX_NODES_PER_IMEX_DOMAIN",
        "RUST_LOG",
        "NVIDIA_VISIBLE_DEVICES",
    ] {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn the_hash_is_that_of_the_spec_alone() {
    let (old, mut config) = (daemon_set(DaemonsOf::Domain(&domain()), &config()), config());
    assert_eq!(hash_of(&old), hash_of(&daemon_set(DaemonsOf::Domain(&domain()), &config)));
    assert_eq!(hash_of(&old).unwrap().len(), 32);
    config.daemon.image = "example.com/octavo:2".to_owned();
    assert_ne!(hash_of(&old), hash_of(&daemon_set(DaemonsOf::Domain(&domain()), &config)));
}

#[test]
fn daemons_that_encrypt_read_the_secret_of_their_name() {
    let mut config = config();
    let plain = daemon_set(DaemonsOf::Domain(&domain()), &config);
    config.imex.encryption = true;
    let set = daemon_set(DaemonsOf::Domain(&domain()), &config);
    is_whole::<DaemonSet>(&set);
    assert_ne!(hash_of(&plain), hash_of(&set));
    let pod = &set["spec"]["template"]["spec"];
    let secret = json!({"secretName": set["metadata"]["name"], "defaultMode": 0o400});
    assert_eq!(pod["volumes"][1], json!({"name": "tls", "secret": secret}));
    let container = &pod["containers"][0];
    let folder = &container["volumeMounts"][1]["mountPath"];
    assert_eq!(container["volumeMounts"][1]["name"], "tls");
    let variable = json!({"name": "OCTAVO_TLS_FOLDER", "value": folder});
    assert!(container["env"].as_array().unwrap().contains(&variable));
    assert!(!plain.to_string().contains("tls"));
}

#[test]
fn a_secret_with_a_certificate_is_owned_by_the_daemon_set_and_does_not_change() {
    let request = CertificateRequest {
        namespace: "octavo".to_owned(),
        domain: "0d3b9a2e".to_owned(),
        title: "ComputeDomain 0d3b9a2e".to_owned(),
        owner: "u".to_owned(),
        slots: 18,
    };
    let issued = crate::certificate::issue(&request, jiff::Timestamp::UNIX_EPOCH).unwrap();
    let object = certificate_secret(&request, &issued);
    is_whole::<Secret>(&object);
    let metadata = &object["metadata"];
    assert_eq!(metadata["name"], daemon_name("0d3b9a2e"));
    assert_eq!(metadata["labels"][LABEL_COMPUTE_DOMAIN], "0d3b9a2e");
    assert_eq!(metadata["ownerReferences"][0]["uid"], "u");
    assert_eq!(hash_of(&object), Some(names_hash(18).as_str()));
    assert_ne!(names_hash(18), names_hash(36));
    assert_eq!(
        (&object["immutable"], &object["type"]),
        (&json!(true), &json!("kubernetes.io/tls"))
    );
    let keys: Vec<&String> = object["stringData"].as_object().unwrap().keys().collect();
    assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"]);
}

#[test]
fn shared_daemons_run_where_a_clique_is() {
    let (template, set) =
        (daemon_template(DaemonsOf::Cliques, &config()), daemon_set(DaemonsOf::Cliques, &config()));
    is_whole::<ResourceClaimTemplate>(&template);
    is_whole::<DaemonSet>(&set);
    let name = format!("computedomain-daemon-{SHARED_IMEX_DOMAIN}");
    assert_eq!(
        (&template["metadata"]["name"], &set["metadata"]["name"]),
        (&json!(name), &json!(name))
    );
    let parameters = &template["spec"]["spec"]["devices"]["config"][0]["opaque"]["parameters"];
    assert_eq!(parameters["domainID"], SHARED_IMEX_DOMAIN);
    octavo_api::config::decode(parameters, |_: &str| Err("none".to_owned())).unwrap();
    assert!(template["spec"]["metadata"].get("annotations").is_none(), "there is no such domain");
    let pod = &set["spec"]["template"]["spec"];
    assert!(pod.get("nodeSelector").is_none());
    assert_eq!(pod["resourceClaims"][0]["resourceClaimTemplateName"], name);
    let terms = &pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    let wanted = json!([{"key": "nvidia.com/gpu.clique", "operator": "Exists"}]);
    assert_eq!(terms["nodeSelectorTerms"][0]["matchExpressions"], wanted);
}
