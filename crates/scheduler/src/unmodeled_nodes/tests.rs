use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;

fn nodes(nodes: &[(&str, UnmodeledReason)]) -> BTreeMap<NodeName, UnmodeledReason> {
    nodes.iter().map(|(name, why)| ((*name).into(), why.clone())).collect()
}

#[test]
fn node_is_logged_once_per_reason() {
    let mut reporter = UnmodeledNodesReporter::default();
    let twice = UnmodeledReason::ServedTwice;
    let first = nodes(&[("a", twice.clone()), ("b", twice.clone())]);
    let change = reporter.update(&first);
    assert_eq!(change.added, [(twice.to_string(), vec!["a".into(), "b".into()])].into());
    assert_eq!(reporter.update(&first), UnmodeledChange::default());
    let pools = UnmodeledReason::SeveralPools(2);
    let change = reporter.update(&nodes(&[("b", pools.clone())]));
    assert_eq!(change.added, [(pools.to_string(), vec!["b".into()])].into());
    assert_eq!(change.recovered, ["a".into()]);
}

#[test]
fn metric_counts_current_reasons_only() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let mut reporter = UnmodeledNodesReporter::default();
    let lines = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let is_it = |line: &&str| line.starts_with("octavo_scheduler_nodes_unmodeled{");
        text.lines().filter(is_it).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = [("a", UnmodeledReason::ServedTwice), ("b", UnmodeledReason::ServedTwice)];
    reporter.report(&nodes(&all), &metrics);
    assert_eq!(lines(), ["octavo_scheduler_nodes_unmodeled{reason=\"ServedTwice\"} 2"]);
    reporter.report(&nodes(&[]), &metrics);
    assert_eq!(lines(), Vec::<String>::new());
}
