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
        "| `octavo_controller_health_devices` | gauge | `policy`, `state` |",
        "| `octavo_controller_health_breaker_open` | gauge | `policy` |",
        "| `octavo_controller_health_round_seconds` | histogram |  |",
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

#[test]
fn a_policy_that_is_gone_has_no_figures() {
    let mut registry = Registry::default();
    let metrics = Metrics::new(&mut registry);
    let page = |policies: &[&str]| {
        let all: Vec<_> = policies
            .iter()
            .map(|name| ((*name).to_owned(), HealthPolicyStatus::default()))
            .collect();
        metrics.health.show(all.iter().map(|(name, status)| (name, status)), 1, false);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        text
    };
    assert!(page(&["a", "b"]).contains("octavo_controller_health_remedies{policy=\"b\"} 0"));
    let text = page(&["a"]);
    assert!(!text.contains("policy=\"b\""), "{text}");
    assert!(text.contains("octavo_controller_health_nodes_in_maintenance 1"), "{text}");
    metrics.health.clear();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for gone in ["policy=", "octavo_controller_health_nodes_in_maintenance 1"] {
        assert!(!text.contains(gone), "another controller leads: {text}");
    }
}
