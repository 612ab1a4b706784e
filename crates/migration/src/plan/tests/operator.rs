use serde_json::json;

use super::fixtures::{commands, gpu_operator, node, node_plan, planned, pod};
use crate::plan::{Component, Fate, Mode, Owner, plan_text};

#[test]
fn pods_with_plugin_devices_keep_them_in_the_mode_device_plugin() {
    let mut objects = gpu_operator(&["a", "b"]);
    let gpus = json!({"nvidia.com/gpu": "8", "cpu": "64"});
    objects.push(node("a", json!({"nvidia.com/mig.config": "all-1g.10gb"}), gpus));
    let mixed = json!({"nvidia.com/gpu": "7", "nvidia.com/mig-1g.10gb": "7"});
    objects.push(node("b", json!({}), mixed));
    objects.push(node("c", json!({"nvidia.com/gpu.present": "false"}), json!({"cpu": "64"})));
    for index in 0..7 {
        objects.push(pod(&format!("train-{index}"), "a", json!({"nvidia.com/gpu": 1})));
    }
    let plan = planned(&objects);
    assert_eq!(plan.obstacles, Vec::<String>::new());
    let names: Vec<&str> = plan.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["a", "b"], "the third has no GPU");
    let busy = node_plan(&plan, "a");
    assert_eq!((busy.mode, busy.must_end.count), (Mode::DevicePlugin, 0));
    assert_eq!((busy.plugin_pods.names.len(), busy.plugin_pods.count), (5, 7));
    assert!(busy.plugin_pods.to_string().ends_with("team-a/train-4 and 2 more"));
    assert_eq!(busy.offers[0].by, "NVIDIA's device plugin");
    let pod = "gpu-operator/nvidia-device-plugin-daemonset-a";
    assert_eq!(busy.offers[0].pod.as_deref(), Some(pod));
    assert_eq!(busy.offers[0].resources, [("nvidia.com/gpu".to_owned(), "8".to_owned())].into());
    let ends = [Component::DevicePlugin, Component::FeatureDiscovery, Component::MigManager];
    assert_eq!(busy.ends, ends);
    assert!(busy.stays.iter().any(|line| line == "NVIDIA's driver in a container"), "{busy:?}");
    assert!(busy.taken_over.iter().any(|line| line.contains("all-1g.10gb")), "{busy:?}");
    let idle = node_plan(&plan, "b");
    assert_eq!((idle.mode, idle.plugin_pods.count), (Mode::Dra, 0));
    assert!(
        idle.changes.iter().any(|line| line.starts_with("nvidia.com/gpu is served by a claim"))
    );
    assert!(
        idle.changes.iter().any(|line| line.starts_with("nvidia.com/mig-1g.10gb are not offered"))
    );
}

#[test]
fn parts_have_owners_and_fates() {
    let plan = planned(&gpu_operator(&[]));
    let found = |object: &str| plan.found.iter().find(|found| found.object == object).unwrap();
    let policy = found("ClusterPolicy cluster-policy");
    let helm = Owner::Helm { release: "gpu-operator".into(), namespace: "gpu-operator".into() };
    assert_eq!((&policy.owner, policy.fate), (&helm, Fate::Stays));
    let plugin = found("DaemonSet gpu-operator/nvidia-device-plugin-daemonset");
    assert_eq!(plugin.owner, Owner::Object("ClusterPolicy the-owner".to_owned()));
    assert_eq!(plugin.fate, Fate::Replaced);
    assert_eq!(found("DaemonSet gpu-operator/nvidia-dcgm-exporter").fate, Fate::Stays);
    assert!(plan.steps.is_empty() && plan.way_back.is_empty(), "there is no node");
}

#[test]
fn steps_are_in_order_and_go_back() {
    let mut objects = gpu_operator(&["a", "b"]);
    objects.push(node("a", json!({}), json!({"nvidia.com/gpu": "8"})));
    objects.push(node("b", json!({}), json!({"nvidia.com/gpu": "8"})));
    objects.push(pod("train", "a", json!({"nvidia.com/gpu": 1})));
    objects.push(json!({"kind": "CustomResourceDefinition", "metadata": {"name": "nodefeatures.nfd.k8s-sigs.io"}}));
    let plan = planned(&objects);
    let steps = commands(&plan.steps);
    let mut rest = steps.as_str();
    for part in [
        "kubectl get clusterpolicy cluster-policy -o yaml > clusterpolicy.yaml",
        "kubectl label node b octavo.dev/mode=dra --overwrite",
        "helm upgrade --install octavo charts/octavo --namespace octavo-system --create-namespace \
         --set 'agent.driverRoot=/run/nvidia/driver' --set 'agent.mode=device-plugin' \
         --set 'agent.devicePlugin.flags.pass-device-specs=true' \
         --set 'agent.devicePlugin.flags.device-list-strategy=envvar' --set 'agent.featureLabels=config' \
         --set 'agent.migManager.enabled=true'",
        "kubectl label node a b nvidia.com/gpu.deploy.device-plugin=false \
         nvidia.com/gpu.deploy.gpu-feature-discovery=false nvidia.com/gpu.deploy.mig-manager=false --overwrite",
        "octavo doctor",
        r#"kubectl patch clusterpolicy cluster-policy --type merge -p '{"spec":{"devicePlugin":{"enabled":false},"gfd":{"enabled":false},"migManager":{"enabled":false}}}'"#,
    ] {
        let at = rest.find(part).unwrap_or_else(|| panic!("{part}\nis not next in\n{rest}"));
        rest = &rest[at + part.len()..];
    }
    let back: Vec<(&str, String)> =
        plan.way_back.iter().map(|step| (step.what.as_str(), step.commands.join("\n"))).collect();
    let labels = "kubectl label node a b nvidia.com/gpu.deploy.device-plugin=true \
                  nvidia.com/gpu.deploy.gpu-feature-discovery=true nvidia.com/gpu.deploy.mig-manager=true --overwrite";
    let patch = r#"kubectl patch clusterpolicy cluster-policy --type merge -p '{"spec":{"devicePlugin":{"enabled":true},"gfd":{"enabled":true},"migManager":{"enabled":true}}}'"#;
    let expected = [
        (
            "End the pods that have GPUs of Octavo's nodes, and delete the ComputeDomains. The command names them.",
            "octavo uninstall --dry-run".to_owned(),
        ),
        (
            "Uninstall Octavo. While something of the above is left, nothing is removed. The nodes lose their labels of Octavo, \
             and their modes.",
            "octavo uninstall".to_owned(),
        ),
        (
            "Let the parts that were replaced run again, as they were saved.",
            format!("{patch}\n{labels}"),
        ),
    ];
    assert_eq!(back, expected);
}

#[test]
fn equal_nodes_are_listed_once() {
    let names: Vec<String> = (0..8).map(|index| format!("gpu-{index}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut objects = gpu_operator(&names);
    objects.extend(names.iter().map(|name| node(name, json!({}), json!({"nvidia.com/gpu": "8"}))));
    let text = plan_text(&planned(&objects));
    assert!(text.contains("gpu-0, gpu-1, gpu-2, gpu-3, gpu-4 and 3 more: mode dra"), "{text}");
    assert_eq!(text.matches("offered by NVIDIA's device plugin: nvidia.com/gpu: 8").count(), 1);
    assert!(text.contains("nothing stands in the way"), "{text}");
    assert!(text.contains("kubectl label node NODE... nvidia.com/gpu.deploy.device-plugin=false"));
}

#[test]
fn charts_and_manifests_are_ended_as_they_were_installed() {
    let daemon_set = |name: &str, annotations: serde_json::Value| {
        json!({
            "kind": "DaemonSet",
            "metadata": {"name": name, "namespace": "nvidia", "annotations": annotations},
            "spec": {"template": {"spec": {"containers": [
                {"name": "nvidia-device-plugin-ctr", "env": [{"name": "MIG_STRATEGY", "value": "mixed"}]},
            ]}}},
        })
    };
    let helm =
        json!({"meta.helm.sh/release-name": "nvdp", "meta.helm.sh/release-namespace": "nvidia"});
    let one = node("a", json!({}), json!({"nvidia.com/mig-1g.10gb": "7"}));
    let user = pod("train", "a", json!({"nvidia.com/mig-1g.10gb": 1}));
    let plan = planned(&[daemon_set("plugin", helm), one.clone(), user.clone()]);
    let steps = commands(&plan.steps);
    assert!(
        steps.contains("helm get values nvdp --namespace nvidia > nvdp-values.yaml"),
        "{steps}"
    );
    assert!(steps.contains("helm uninstall nvdp --namespace nvidia"), "{steps}");
    assert!(steps.contains("--set 'agent.devicePlugin.flags.mig-strategy=mixed'"), "{steps}");
    assert!(!steps.contains("agent.driverRoot"), "the driver is on the host");
    let plan = planned(&[daemon_set("plugin", json!({})), one, user]);
    let steps = commands(&plan.steps);
    assert!(steps.contains("kubectl delete daemonset plugin --namespace nvidia"), "{steps}");
    let back = commands(&plan.way_back);
    assert!(back.contains("kubectl apply -f plugin.yaml"), "{back}");
}

#[test]
fn what_could_not_be_read_makes_the_plan_incomplete() {
    let mut cluster = super::fixtures::cluster(&[node("a", json!({}), json!({}))]);
    let why = "pods is forbidden: User \"x\" cannot list".to_owned();
    cluster.unread.push(crate::plan::Unread { what: "pods".to_owned(), why });
    let plan = crate::plan::plan(&cluster, &crate::Options::default());
    assert!(!plan.is_clear());
    assert!(plan.obstacles[0].starts_with("pods could not be read, so the plan is not complete: "));
    assert!(plan_text(&plan).contains("NOT READ"));
}

#[test]
fn an_empty_cluster_and_a_cluster_of_octavo_need_nothing() {
    let plan = planned(&[]);
    assert!(plan.is_clear() && plan.steps.is_empty());
    assert!(plan_text(&plan).contains("no node has NVIDIA GPUs"));
    let agent = json!({
        "kind": "Pod",
        "metadata": {
            "name": "octavo-agent-x", "namespace": "octavo-system",
            "labels": {"app.kubernetes.io/part-of": "octavo", "app.kubernetes.io/component": "agent"},
        },
        "spec": {"nodeName": "a", "containers": [{"name": "agent", "command": ["octavo-agent"]}]},
    });
    let labels = json!({"octavo.dev/mode": "device-plugin"});
    let user = pod("train", "a", json!({"nvidia.com/gpu": 1}));
    let plan = planned(&[agent, node("a", labels, json!({"nvidia.com/gpu": "8"})), user]);
    assert_eq!(plan.nodes[0].offers[0].by, "Octavo's agent");
    assert_eq!(plan.nodes[0].mode, Mode::DevicePlugin);
    assert!(plan.is_clear() && plan.steps.is_empty(), "{plan:?}");
}
