use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;

use super::*;

fn nodes(nodes: &[(&str, Outside)]) -> BTreeMap<Arc<str>, Outside> {
    nodes.iter().map(|(name, why)| (Arc::from(*name), why.clone())).collect()
}

#[test]
fn each_node_is_told_of_once_and_again_when_the_reason_is_another() {
    let mut told = OutsideTold::default();
    let twice = Outside::ServedTwice;
    let first = nodes(&[("a", twice.clone()), ("b", twice.clone())]);
    let news = told.take(&first);
    assert_eq!(news.out, [(twice.to_string(), vec!["a".into(), "b".into()])].into());
    assert_eq!(told.take(&first), News::default());
    let pools = Outside::SeveralPools(2);
    let news = told.take(&nodes(&[("b", pools.clone())]));
    assert_eq!(news.out, [(pools.to_string(), vec!["b".into()])].into());
    assert_eq!(news.back, ["a".into()]);
}

#[test]
fn the_metric_has_a_number_for_each_reason_and_none_that_is_over() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let mut told = OutsideTold::default();
    let lines = || {
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        let is_it = |line: &&str| line.starts_with("octavo_scheduler_nodes_unmodeled{");
        text.lines().filter(is_it).map(str::to_owned).collect::<Vec<_>>()
    };
    let all = [("a", Outside::ServedTwice), ("b", Outside::ServedTwice)];
    told.tell(&nodes(&all), &metrics);
    assert_eq!(lines(), ["octavo_scheduler_nodes_unmodeled{reason=\"ServedTwice\"} 2"]);
    told.tell(&nodes(&[]), &metrics);
    assert_eq!(lines(), Vec::<String>::new());
}
