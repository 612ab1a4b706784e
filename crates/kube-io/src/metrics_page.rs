//! Reference pages of metrics, generated from a registry.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prometheus_client::registry::Registry;

/// A metric's row.
#[derive(Default)]
struct Entry {
    help: String,
    kind: String,
    labels: Vec<String>,
}

/// A page in Markdown with every metric of a registry: its kind, labels and help. The labels of a family are known once
/// the caller has set one of its metrics.
pub fn metrics_page(title: &str, registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = prometheus_client::encoding::text::encode(&mut text, registry);
    let mut page = format!(
        "# {title}\n\nGenerated; do not edit. Served at `/metrics` in the OpenMetrics format.\n\n\
         | metric | kind | labels | what |\n|---|---|---|---|\n"
    );
    for (name, Entry { help, kind, labels }) in entries(&text) {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let total = if kind == "counter" { "_total" } else { "" };
        let _ = writeln!(page, "| `{name}{total}` | {kind} | {} | {help} |", labels.join(", "));
    }
    page
}

fn entries(text: &str) -> BTreeMap<String, Entry> {
    let mut entries: BTreeMap<String, Entry> = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            help.trim_end_matches('.')
                .clone_into(&mut entries.entry(name.into()).or_default().help);
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' '))
        {
            kind.clone_into(&mut entries.entry(name.into()).or_default().kind);
        } else if let Some((sample, labels)) = line.split_once('{') {
            // Backwards: the longest name that matches.
            let owner = entries.iter_mut().rev().find(|(name, _)| sample.starts_with(*name));
            if let Some((_, entry)) = owner {
                let labels = labels.split('}').next().unwrap_or_default().split(',');
                let names = labels.filter_map(|label| Some(label.split_once('=')?.0));
                for name in names.filter(|name| *name != "le") {
                    if !entry.labels.iter().any(|known| known == name) {
                        entry.labels.push(name.to_owned());
                    }
                }
            }
        }
    }
    entries
}
