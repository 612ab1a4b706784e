use super::*;

#[test]
fn every_metric_has_its_labels_on_the_page() {
    let page = reference();
    for line in [
        "| `octavo_scheduler_decisions_total` | counter | `subject`, `result`, `reason` |",
        "| `octavo_scheduler_decision_seconds` | histogram | `subject` |",
        "| `octavo_scheduler_api_requests_total` | counter | `resource`, `verb`, `code` |",
        "| `octavo_scheduler_orders_limit` | gauge |  |",
        "| `octavo_scheduler_pod_binding_seconds` | histogram |  |",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
    assert!(page.lines().filter(|line| line.starts_with("| `")).count() >= 14, "{page}");
}

#[test]
fn requests_counts_successful_responses_only() {
    let metrics = Metrics::new(&mut Registry::default());
    metrics.request("pods/binding", &Method::POST, 201);
    metrics.request("pods/binding", &Method::POST, 409);
    metrics.request("pods/binding", &Method::POST, 0);
    assert_eq!(metrics.requests("pods/binding", "create"), 1);
}

#[test]
fn checked_in_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/scheduler-metrics.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let page = reference();
    assert!(found == page, "{path} is not what the metrics are; it should be:\n{page}");
}
