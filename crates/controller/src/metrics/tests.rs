use super::*;

#[test]
fn every_metric_has_its_labels_on_the_page() {
    let page = reference();
    for line in [
        "| `nvidia_dra_compute_domain_info` | gauge | `status` |",
        "| `octavo_controller_compute_domains` | gauge | `status` |",
        "| `octavo_controller_writes_total` | counter | `kind`, `result` |",
        "| `octavo_controller_plan_seconds` | histogram |  |",
        "| `octavo_controller_leader` | gauge |  |",
        "| `octavo_controller_translations_total` | counter | `result` |",
        "| `octavo_controller_translation_refusals_total` | counter | `reason` |",
        "| `octavo_controller_translation_seconds` | histogram |  |",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

#[test]
fn checked_in_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/controller-metrics.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let page = reference();
    assert!(found == page, "{path} is not what the metrics are; it should be:\n{page}");
}
