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
fn checked_in_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/agent-metrics.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let page = metrics_reference();
    assert!(found == page, "{path} is not what the metrics are; it should be:\n{page}");
}
