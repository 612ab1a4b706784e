use super::*;

#[test]
fn every_metric_has_its_labels_on_the_page() {
    let page = metrics_reference();
    for line in [
        "| `nvidia_dra_requests_total` | counter | `driver`, `operation` |",
        "| `nvidia_dra_request_duration_seconds` | histogram | `driver`, `operation` |",
        "| `octavo_agent_share_memory_limit_bytes` | gauge | `node`, `namespace`, `claim`, `share`, `device`, `gpu` |",
        "| `octavo_agent_watch_blind` | gauge | `node`, `gpu`, `reason` |",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    let bare: Vec<_> = page.lines().filter(|line| line.contains("|  |")).collect();
    assert!(bare.is_empty(), "all metrics of the agent have labels: {bare:?}");
    assert!(page.lines().filter(|line| line.starts_with("| `")).count() >= 27, "{page}");
}

#[test]
fn every_registered_metric_is_on_the_page() {
    let mut registry = Registry::default();
    drop(Metrics::new(&mut registry));
    // The encoder leaves out a metric that was never set, so the page would lack it.
    let registered = format!("{registry:?}");
    let names = registered.split("Descriptor { name: \"").skip(1);
    let names: Vec<_> = names.filter_map(|rest| rest.split('"').next()).collect();
    let page = metrics_reference();
    let rows = || page.lines().filter_map(|line| line.strip_prefix("| `"));
    // The encoder adds the unit and `_total`.
    let is_there = |name: &str| {
        let mut rest = rows().filter_map(|row| row.strip_prefix(name));
        rest.any(|rest| rest.starts_with(['`', '_']))
    };
    let missing: Vec<_> = names.iter().filter(|name| !is_there(name)).collect();
    assert!(missing.is_empty(), "`touch_all` does not set {missing:?}");
    assert_eq!(rows().count(), names.len(), "{names:?}");
}

#[test]
fn checked_in_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/agent-metrics.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let page = metrics_reference();
    assert!(found == page, "{path} is not what the metrics are; it should be:\n{page}");
}
