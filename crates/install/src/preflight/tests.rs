use serde_json::json;

use super::*;
use crate::node_match::Node;

fn ours() -> Release {
    Release { namespace: "octavo-system".to_owned(), name: "octavo".to_owned() }
}

/// The objects of a chart with this config of the agent.
fn chart(config: &str) -> Vec<Value> {
    let labels = json!({"app.kubernetes.io/component": "agent"});
    vec![
        json!({"kind": "DaemonSet", "metadata": {"name": "octavo-agent", "labels": labels},
            "spec": {"template": {"spec": {"nodeSelector": {"gpu": "true"}}}}}),
        json!({"kind": "ConfigMap", "metadata": {"name": "octavo-agent", "labels": labels},
            "data": {"agent.yaml": config}}),
    ]
}

fn facts() -> Facts {
    let node = |name: &str, label: &str| Node {
        name: name.to_owned(),
        labels: [("gpu".to_owned(), label.to_owned())].into(),
    };
    Facts {
        serves_dra: true,
        nodes: vec![node("a", "true"), node("b", "false")],
        releases: Some(BTreeSet::from([ours()])),
        ..Facts::default()
    }
}

fn part(component: Component, node: &str) -> Part {
    Part {
        component,
        pod: format!("gpu-operator/p-{node}"),
        node: node.to_owned(),
        owner: Owner::Unknown,
    }
}

fn problems(facts: &Facts, chart: &[Value]) -> Vec<String> {
    check(facts, chart, &ours(), false).obstacles.into_iter().map(|found| found.problem).collect()
}

#[test]
fn an_empty_cluster_takes_a_release() {
    assert_eq!(check(&facts(), &chart("mode: dra"), &ours(), false), Preflight::default());
}

#[test]
fn old_clusters_and_those_without_dra_are_refused() {
    assert!(too_old("v1.33.4", (1, 33)).unwrap().problem.contains("Kubernetes v1.33.4"));
    assert_eq!(too_old("v1.34.0", (1, 34)), None);
    let without = Facts { serves_dra: false, ..facts() };
    assert_eq!(problems(&without, &chart("mode: dra")).len(), 1);
    assert!(problems(&without, &chart("mode: device-plugin")).is_empty());
}

#[test]
fn a_live_plugin_is_in_the_way_only_where_an_agent_runs() {
    let with = |parts: &[Part]| Facts { parts: parts.to_vec(), ..facts() };
    let chart = chart("mode: dra\nfeatureLabels: none\n");
    assert!(problems(&with(&[part(Component::DevicePlugin, "b")]), &chart).is_empty());
    for component in [Component::DevicePlugin, Component::DraDriver, Component::HamiDevicePlugin] {
        let found = problems(&with(&[part(component, "a")]), &chart);
        assert_eq!(found, [format!("{} runs on a: gpu-operator/p-a", component.name())]);
    }
    for component in [
        Component::Driver,
        Component::FeatureDiscovery,
        Component::MigManager,
        Component::DcgmExporter,
    ] {
        assert!(problems(&with(&[part(component, "a")]), &chart).is_empty(), "{component:?}");
    }
}

#[test]
fn what_the_settings_take_over_is_in_the_way_too() {
    let chart = chart("featureLabels: node\nmigManager: {}\n");
    let both = Facts {
        parts: vec![part(Component::FeatureDiscovery, "a"), part(Component::MigManager, "a")],
        ..facts()
    };
    assert_eq!(problems(&both, &chart).len(), 2);
}

#[test]
fn definitions_without_an_owner_are_taken_over_and_those_of_a_living_release_are_not() {
    let class = |annotations: Value| {
        json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass",
            "metadata": {"name": "gpu.nvidia.com", "annotations": annotations}})
    };
    let of = |release: &str| {
        class(
            json!({"meta.helm.sh/release-name": release, "meta.helm.sh/release-namespace": "octavo-system"}),
        )
    };
    let living = BTreeSet::from([
        ours(),
        Release { namespace: "octavo-system".to_owned(), name: "nvidia".to_owned() },
    ]);
    let facts = Facts {
        existing: vec![class(json!({})), of("octavo"), of("nvidia"), of("gone")],
        releases: Some(living),
        ..facts()
    };
    let Preflight { obstacles, taken_over, .. } =
        check(&facts, &chart("mode: dra"), &ours(), false);
    assert_eq!(taken_over.len(), 2);
    let [obstacle] = &obstacles[..] else { panic!("one is held") };
    assert!(
        obstacle.problem.contains("DeviceClass gpu.nvidia.com is of helm release nvidia"),
        "{obstacle:?}"
    );
    assert!(obstacle.remedy.contains("--set deviceClasses.enabled=false"), "{obstacle:?}");
}

#[test]
fn plugins_may_be_waited_for_and_nodes_that_have_left_are_others() {
    let chart = chart("mode: dra");
    let with = |component| Facts { parts: vec![part(component, "a")], ..facts() };
    let allowed = |facts: &Facts| check(facts, &chart, &ours(), true).obstacles.len();
    assert_eq!(allowed(&with(Component::DevicePlugin)), 0);
    assert_eq!(allowed(&with(Component::DraDriver)), 1, "both have one socket");
    let mut left = with(Component::DevicePlugin);
    left.nodes[0].labels.insert("octavo.dev/mode".to_owned(), "none".to_owned());
    let found = check(&left, &chart, &ours(), false);
    assert_eq!(found.obstacles, []);
    assert!(found.notes[0].contains("will offer no GPU"), "{found:?}");
}

#[test]
fn nodes_that_are_labelled_later_count() {
    let mut chart = chart("mode: dra");
    let mut with = facts();
    with.nodes.iter_mut().for_each(|node| node.labels.clear());
    chart[0]["spec"]["template"]["spec"] =
        json!({"nodeSelector": {"nvidia.com/gpu.present": "true"}});
    with.parts = vec![part(Component::DraDriver, "a")];
    let found = check(&with, &chart, &ours(), false);
    assert_eq!((found.obstacles.len(), found.notes.len()), (0, 1), "no agent runs anywhere");
    chart.push(json!({"kind": "DaemonSet", "metadata": {"name": "d", "labels": {"app.kubernetes.io/component": "discover"}}}));
    assert_eq!(check(&with, &chart, &ours(), false).obstacles.len(), 1);
}
