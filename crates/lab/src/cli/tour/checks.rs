//! Checks the expected result of each stop against the containers' records.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, ensure};
use octavo_machine::{Machine, Model};

use super::{Expected, SeenContainer, Stop};
use crate::cli::gpu;

/// Checks a stop with running pods. Returns the GPUs of its claims as `node device`.
pub(super) fn check(
    state_dir: &Path,
    stop: &Stop,
    seen: &[SeenContainer],
) -> anyhow::Result<BTreeSet<String>> {
    let mut gpus = BTreeSet::new();
    for seen in seen {
        let found = seen.container.gpus();
        let (pod, name) = (&seen.pod, seen.container.name());
        let wanted = match stop.expected {
            Expected::GpusPerContainer(count) => count,
            _ => 1,
        };
        ensure!(
            found.len() == wanted,
            "{pod}/{name} sees {} GPUs, not {wanted}: {found:?}",
            found.len()
        );
        ensure!(
            seen.container.variable("NVIDIA_VISIBLE_DEVICES") == Some("void"),
            "{pod}/{name} lacks NVIDIA_VISIBLE_DEVICES=void: a legacy runtime hook would add GPUs",
        );
        gpus.extend(found.iter().map(|gpu| format!("{} {gpu}", seen.node)));
        if stop.expected == Expected::Selected {
            check_selected(state_dir, stop, seen)?;
        }
    }
    let is_one = || {
        ensure!(gpus.len() == 1, "{}: containers do not share one GPU: {gpus:?}", stop.file);
        Ok(())
    };
    match stop.expected {
        Expected::OneSharedGpu => {
            ensure!(seen.len() > 1, "{}: only {} container was seen", stop.file, seen.len());
            is_one()?;
        }
        Expected::Shares => drop(check_shares(seen)?),
        Expected::SharesOfOneGpu(count) => {
            is_one()?;
            let shares = check_shares(seen)?;
            ensure!(shares == count, "{}: {shares} shares, not {count}", stop.file);
        }
        Expected::MigOfOneGpu(count) => {
            is_one()?;
            check_mig(stop, seen, count)?;
        }
        Expected::GpusPerContainer(_) | Expected::Selected | Expected::Waits(_) => {}
    }
    Ok(gpus)
}

/// Checks that a GPU has the model that its pod requests.
fn check_selected(state_dir: &Path, stop: &Stop, seen: &SeenContainer) -> anyhow::Result<()> {
    let SeenContainer { pod, node, .. } = seen;
    let path = gpu::machine_file(&state_dir.join("nodes").join(node));
    let model = Machine::read(&path).with_context(|| format!("read the machine of {node}"))?.model;
    let selected = is_selected(pod, &model)
        .with_context(|| format!("the tour does not know the pod {pod} of {}", stop.file))?;
    ensure!(selected, "{pod} got a {} with {} MiB", model.name, model.memory_mib);
    Ok(())
}

/// Whether a GPU matches the selector of this pod in `selectors.yaml`; `None` for other pods.
fn is_selected(pod: &str, model: &Model) -> Option<bool> {
    match pod {
        "selects-product" => Some(model.name.to_ascii_lowercase().contains("h100")),
        "selects-memory" => Some(model.memory_mib >= 80 * 1024),
        _ => None,
    }
}

/// Checks that every container has shares with limits, and that the shares fit their GPU. Returns
/// the number of shares.
fn check_shares(seen: &[SeenContainer]) -> anyhow::Result<usize> {
    let mut shares = BTreeMap::new();
    for seen in seen {
        let limits = seen.container.limits()?;
        ensure!(!limits.is_empty(), "{}/{} has no share", seen.pod, seen.container.name());
        shares.extend(limits.into_iter().map(|limits| (limits.share_id.clone(), limits)));
    }
    let mut percent: BTreeMap<&str, u64> = BTreeMap::new();
    for limits in shares.values() {
        ensure!(limits.memory_bytes > 0, "share {} has no memory", limits.share_id);
        *percent.entry(&limits.gpu.uuid).or_default() += limits.compute_milli_percent;
    }
    for (gpu, given) in percent {
        ensure!(given <= 100_000, "the shares of {gpu} add up to {given} thousandths of a percent");
    }
    Ok(shares.len())
}

/// Checks the total number of MIG devices of the containers.
fn check_mig(stop: &Stop, seen: &[SeenContainer], count: usize) -> anyhow::Result<()> {
    // Each MIG device has two capability nodes, which no other device shares.
    let mut nodes = BTreeSet::new();
    for seen in seen {
        let caps = seen.container.capabilities();
        ensure!(!caps.is_empty(), "{}/{} has no MIG device", seen.pod, seen.container.name());
        for node in caps {
            ensure!(nodes.insert(node.clone()), "{}: {node} was given twice", stop.file);
        }
    }
    ensure!(
        nodes.len() == 2 * count,
        "{}: {} capability nodes, not two for each of {count} MIG devices",
        stop.file,
        nodes.len()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_what_its_pod_selects_or_not() {
        let model = |name| crate::nodes::hardware::catalogue::load(name).unwrap().model;
        assert_eq!(is_selected("selects-product", &model("dgx-h100")), Some(true));
        assert_eq!(is_selected("selects-product", &model("dgx-a100-80")), Some(false));
        assert_eq!(is_selected("selects-memory", &model("dgx-a100-80")), Some(true));
        assert_eq!(is_selected("selects-memory", &model("dgx-h100")), Some(false));
        assert_eq!(is_selected("another", &model("t4")), None);
    }
}
