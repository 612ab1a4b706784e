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
fn requests_are_counted_by_what_was_done() {
    let metrics = Metrics::new(&mut Registry::default());
    metrics.request("pods/binding", &Method::POST, 201);
    metrics.request("pods/binding", &Method::POST, 409);
    metrics.request("pods/binding", &Method::POST, 0);
    assert_eq!(metrics.requests("pods/binding", "create"), 1);
}
