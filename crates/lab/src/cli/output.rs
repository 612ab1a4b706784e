//! Output of the lab's commands.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use octavo_term::TextTable;
use serde::Serialize;

use crate::chaos::Report;
use crate::cli::args::OutputForm;
use crate::cli::status::{NodeStatus, Status};
use crate::cluster::Lab;
use crate::cluster::layout::Layout;

/// With more nodes, tables have one line per machine instead of one per node.
const MAX_NODE_LINES: usize = 24;

/// Writes to standard output; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(e).context("write to standard output")
        }
        _ => Ok(()),
    }
}

/// The final output of `up`: a summary and the next commands.
pub(crate) fn welcome(lab: &Lab, state: &str, took: Duration) -> String {
    let settings = lab.settings();
    let mut machines: BTreeMap<&str, usize> = BTreeMap::new();
    for node in settings.all_nodes() {
        *machines.entry(node.machine.as_str()).or_default() += 1;
    }
    let kubernetes = settings.kubernetes.as_deref().unwrap_or("from KUBEBUILDER_ASSETS");
    let mut text = format!(
        "The lab {state} after {:.1} s: Kubernetes {kubernetes}, {} nodes, in {}\n",
        took.as_secs_f64(),
        settings.all_nodes().count(),
        lab.state_dir().display()
    );
    if !machines.is_empty() {
        let mut table = TextTable::new(&["MACHINE", "NODES"]);
        for (machine, count) in machines {
            table.plain([machine.to_owned(), count.to_string()]);
        }
        text.extend(["\n", &table.plain_text()]);
    }
    text.push_str("\nType next:\n");
    text.push_str(&exports(lab.layout(), &settings.octavo, |name| std::env::var_os(name)));
    text.push_str("  octavo lab kubectl get resourceslices\n  octavo top\n  octavo lab down\n");
    text
}

/// Shell lines that make the following commands refer to this lab and this binary.
fn exports(layout: &Layout, octavo: &Path, env: impl Fn(&str) -> Option<OsString>) -> String {
    let mut text = format!("  export KUBECONFIG={}\n", layout.kubeconfig().display());
    let chosen = Layout::choose_from(None, |name| env(name).filter(|value| !value.is_empty()));
    if chosen.ok().as_ref() != Some(layout) {
        let _ = writeln!(text, "  export OCTAVO_LAB_DIR={}", layout.root().display());
    }
    let path = env("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("octavo"));
    let on_path = found.into_iter().find(|program| program.is_file());
    let same =
        on_path.and_then(|program| program.canonicalize().ok()) == octavo.canonicalize().ok();
    if let Some(folder) = octavo.parent().filter(|_| !same) {
        let _ = writeln!(text, "  export PATH={}:$PATH", folder.display());
    }
    text
}

/// The lab's status in the requested format.
pub(crate) fn status(status: &Status, form: OutputForm) -> anyhow::Result<String> {
    formed(status, form, status_table)
}

/// The report of `chaos`.
pub(crate) fn chaos(report: &Report, form: OutputForm) -> anyhow::Result<String> {
    formed(report, form, Report::text)
}

fn formed<T: Serialize>(
    value: &T,
    form: OutputForm,
    table: impl FnOnce(&T) -> String,
) -> anyhow::Result<String> {
    match form {
        OutputForm::Table => Ok(table(value)),
        OutputForm::Json => {
            let text = serde_json::to_string_pretty(value).context("write the output as JSON")?;
            Ok(format!("{text}\n"))
        }
        OutputForm::Yaml => serde_saphyr::to_string(value).context("write the output as YAML"),
    }
}

fn status_table(status: &Status) -> String {
    if status.components.is_empty() {
        return format!("no lab is up in {}\n", status.state_dir.display());
    }
    let mut components = TextTable::new(&["COMPONENT", "PID", "STATE", "MEMORY", "LOG"]);
    for component in &status.components {
        let pid = component.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string());
        let memory = component
            .resident_bytes
            .map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        components.plain([
            component.name.clone(),
            pid,
            component.state.to_owned(),
            memory,
            component.log.display().to_string(),
        ]);
    }
    let mut text = components.plain_text();
    if !status.nodes.is_empty() {
        let nodes = if status.nodes.len() > MAX_NODE_LINES {
            machine_table(&status.nodes)
        } else {
            node_table(&status.nodes)
        };
        text.extend(["\n", &nodes.plain_text()]);
    }
    if let Some(problem) = &status.problem {
        text.extend(["\n", problem, "\n"]);
    }
    text
}

fn node_table(nodes: &[NodeStatus]) -> TextTable {
    let mut table = TextTable::new(&["NODE", "MACHINE", "GPUS", "READY", "SLICES"]);
    for node in nodes {
        let ready = match node.ready {
            Some(true) => "yes",
            Some(false) => "no",
            None => "?",
        };
        table.plain([
            node.name.clone(),
            node.machine.clone(),
            known(node.gpus),
            ready.to_owned(),
            known(node.slices),
        ]);
    }
    table
}

fn machine_table(nodes: &[NodeStatus]) -> TextTable {
    let mut table = TextTable::new(&["MACHINE", "NODES", "GPUS", "READY", "WITH SLICES"]);
    let mut machines: BTreeMap<&str, Vec<&NodeStatus>> = BTreeMap::new();
    for node in nodes {
        machines.entry(&node.machine).or_default().push(node);
    }
    for (machine, nodes) in machines {
        let count = |is: fn(&NodeStatus) -> bool| nodes.iter().filter(|node| is(node)).count();
        table.plain([
            machine.to_owned(),
            nodes.len().to_string(),
            nodes.iter().filter_map(|node| node.gpus).sum::<usize>().to_string(),
            count(|node| node.ready == Some(true)).to_string(),
            count(|node| node.slices.is_some_and(|slices| slices > 0)).to_string(),
        ]);
    }
    table
}

fn known(value: Option<usize>) -> String {
    value.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::status::ComponentStatus;

    fn node(name: &str, ready: Option<bool>) -> NodeStatus {
        NodeStatus {
            name: name.to_owned(),
            machine: "dgx-h100".to_owned(),
            gpus: Some(8),
            ready,
            slices: ready.map(|_| 1),
        }
    }

    fn sample(nodes: usize) -> Status {
        Status {
            state: "degraded",
            state_dir: "/s".into(),
            kubeconfig: Some("/s/kubeconfig".into()),
            kubernetes: Some("v1.36.3".to_owned()),
            started: None,
            components: vec![ComponentStatus {
                name: "etcd".to_owned(),
                pid: None,
                state: "ended",
                resident_bytes: None,
                log: "/s/logs/etcd.log".into(),
            }],
            nodes: (0..nodes).map(|n| node(&format!("n-{n}"), Some(n > 0))).collect(),
            problem: Some("start it again with `octavo lab up`".to_owned()),
        }
    }

    #[test]
    fn printed_exports_select_this_lab_and_binary() {
        let folder = tempfile::tempdir().unwrap();
        let octavo = folder.path().join("octavo");
        std::fs::write(&octavo, "").unwrap();
        let here = folder.path().to_str().unwrap();
        let lines = |root: &str, path: &str| {
            let layout = Layout::new(Path::new(root)).unwrap();
            exports(&layout, &octavo, |name| match name {
                "HOME" => Some("/home/me".into()),
                "PATH" => Some(path.into()),
                _ => None,
            })
        };
        let plain = "  export KUBECONFIG=/home/me/.octavo/lab/kubeconfig\n";
        assert_eq!(lines("/home/me/.octavo/lab", &format!("/no/such:{here}")), plain);
        let other = lines("/labs/b", "/no/such");
        assert!(other.contains("  export OCTAVO_LAB_DIR=/labs/b\n"), "{other}");
        assert!(other.contains(&format!("  export PATH={here}:$PATH\n")), "{other}");
    }

    #[test]
    fn few_nodes_have_a_line_each_and_many_a_line_for_their_machine() {
        let few = status_table(&sample(2));
        let line = |text: &str, start: &str| -> Vec<String> {
            let line = text.lines().find(|line| line.starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(line(&few, "etcd"), ["etcd", "-", "ended", "-", "/s/logs/etcd.log"]);
        assert_eq!(line(&few, "n-0"), ["n-0", "dgx-h100", "8", "no", "1"]);
        assert!(few.contains("octavo lab up"));
        let many = status_table(&sample(100));
        assert_eq!(line(&many, "dgx-h100"), ["dgx-h100", "100", "800", "99", "100"]);
        assert!(!many.contains("n-50"));
    }

    #[test]
    fn the_status_as_json_has_every_node() {
        let text = status(&sample(100), OutputForm::Json).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["nodes"].as_array().unwrap().len(), 100);
        assert_eq!(value["state"], "degraded");
        assert_eq!(value["components"][0]["residentBytes"], serde_json::Value::Null);
        assert!(status(&sample(1), OutputForm::Yaml).unwrap().contains("stateDir: /s"));
    }
}
