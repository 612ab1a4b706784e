//! `octavo lab tour`: plain manifests on the running lab, each with what it should show.
//!
//! The tour applies the manifests of a folder as a user would, waits for what each promises,
//! checks it against what the simulated containers really got, then deletes everything and
//! looks for leftovers. It is the demo and an end-to-end test at once: whatever does not hold
//! is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use octavo_machine::{Machine, Model};

use crate::gpu;

mod container;
mod leftovers;
mod objects;

use container::Container;

/// How long a pod may take to run; on a real cluster image pulls are most of it.
const PATIENCE: Duration = Duration::from_mins(1);

/// Namespace of the examples.
const NAMESPACE: &str = "octavo-tour";

/// One stop: a manifest and what has to hold once it is applied.
struct Stop {
    file: &'static str,
    title: &'static str,
    shows: Shows,
}

/// What a stop has to show.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shows {
    /// Every pod runs and each container sees exactly this many GPUs.
    GpusPerContainer(usize),
    /// As above with one GPU, of the model that the pod's selector asks for.
    Selected,
    /// As above with one GPU, and all containers of the manifest see the same one.
    OneSharedGpu,
    /// The pod waits, and `octavo explain pod` says why.
    Waits,
}

const STOPS: [Stop; 6] = [
    Stop {
        file: "extended-resource.yaml",
        title: "a pod with limits nvidia.com/gpu: 1",
        shows: Shows::GpusPerContainer(1),
    },
    Stop {
        file: "claim-template.yaml",
        title: "a ResourceClaimTemplate for gpu.nvidia.com",
        shows: Shows::GpusPerContainer(1),
    },
    Stop {
        file: "shared-in-pod.yaml",
        title: "two containers of a pod share one claim",
        shows: Shows::OneSharedGpu,
    },
    Stop {
        file: "shared-claim.yaml",
        title: "two pods share one ResourceClaim",
        shows: Shows::OneSharedGpu,
    },
    Stop {
        file: "selectors.yaml",
        title: "CEL selectors on product and memory",
        shows: Shows::Selected,
    },
    Stop { file: "waits.yaml", title: "a pod that must wait, and why", shows: Shows::Waits },
];

/// Runs the tour over the manifests in `examples` against the lab in `state_dir`.
///
/// `octavo` is the binary that explains the waiting pod; `say` gets one line at a time.
///
/// # Errors
///
/// The first promise that does not hold, in words.
pub(crate) async fn tour(
    client: &Client,
    state_dir: &Path,
    examples: &Path,
    octavo: &Path,
    mut say: impl FnMut(&str),
) -> anyhow::Result<()> {
    ensure!(
        examples.is_dir(),
        "{} is not a folder of manifests: run the tour from the repository, or name its examples/",
        examples.display()
    );
    let before = leftovers::find(client, state_dir, NAMESPACE).await?;
    objects::apply_file(client, &examples.join("namespace.yaml")).await?;
    let mut given = Given::default();
    for (number, stop) in STOPS.iter().enumerate() {
        let started = Instant::now();
        say(&format!("{}. {}  ({})", number + 1, stop.title, stop.file));
        let applied = objects::apply_file(client, &examples.join(stop.file)).await?;
        let pods = objects::pods_of(&applied);
        ensure!(!pods.is_empty(), "{} holds no pod", stop.file);
        if stop.shows == Shows::Waits {
            show_waiting(client, state_dir, octavo, &pods, &mut say).await?;
        } else {
            let gpus = show_running(client, state_dir, &pods, stop, &mut say).await?;
            // All pods of the tour run side by side, so no two of its claims have the same GPU.
            given.add(stop.file, gpus)?;
        }
        say(&format!("   took {} ms", started.elapsed().as_millis()));
    }
    say("Deleting everything, then looking for what was left behind.");
    objects::delete_namespace(client, NAMESPACE, PATIENCE).await?;
    leftovers::check(client, state_dir, &before).await?;
    say("Nothing is left: no CDI file, no checkpoint, no allocation.");
    Ok(())
}

/// The GPUs of running pods, as `node device`, and the manifest that got each.
#[derive(Default)]
struct Given {
    gpus: BTreeMap<String, &'static str>,
}

impl Given {
    fn add(&mut self, file: &'static str, gpus: Vec<String>) -> anyhow::Result<()> {
        for gpu in gpus {
            if let Some(other) = self.gpus.insert(gpu.clone(), file) {
                bail!("{gpu} was given twice, to claims of {other} and of {file}");
            }
        }
        Ok(())
    }
}

/// Whether a GPU is what the pod of that name in `selectors.yaml` asks for; none for other pods.
fn is_selected(pod: &str, model: &Model) -> Option<bool> {
    match pod {
        "selects-product" => Some(model.name.to_ascii_lowercase().contains("h100")),
        "selects-memory" => Some(model.memory_mib >= 80 * 1024),
        _ => None,
    }
}

/// Shows what the pods of a stop got, and returns the GPUs of its claims as `node device`.
async fn show_running(
    client: &Client,
    state_dir: &Path,
    names: &[String],
    stop: &Stop,
    say: &mut impl FnMut(&str),
) -> anyhow::Result<Vec<String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut seen = Vec::new();
    for name in names {
        let pod = objects::wait_for_phase(&pods, name, "Running", PATIENCE).await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        for container in Container::all_of(state_dir, &node, &pod)? {
            let gpus = container.gpus();
            say(&format!("   {name}/{} on {node} sees {}", container.name(), gpus.join(", ")));
            let wanted = match stop.shows {
                Shows::GpusPerContainer(n) => n,
                Shows::Selected | Shows::OneSharedGpu | Shows::Waits => 1,
            };
            ensure!(
                gpus.len() == wanted,
                "{name}/{} sees {} GPUs, not {wanted}: {gpus:?}",
                container.name(),
                gpus.len()
            );
            ensure!(
                container.variable("NVIDIA_VISIBLE_DEVICES") == Some("void"),
                "{name}/{} lacks NVIDIA_VISIBLE_DEVICES=void: a legacy runtime hook would add GPUs",
                container.name()
            );
            seen.extend(gpus.iter().map(|gpu| format!("{node} {gpu}")));
        }
        if stop.shows == Shows::Selected {
            let path = gpu::machine_file(&state_dir.join("nodes").join(&node));
            let model = Machine::read(&path).with_context(|| format!("read what {node} is"))?.model;
            let selected = is_selected(name, &model).with_context(|| {
                format!("{name} of {} is no pod that the tour knows", stop.file)
            })?;
            ensure!(selected, "{name} got a {} with {} MiB", model.name, model.memory_mib);
        }
    }
    if stop.shows == Shows::OneSharedGpu {
        ensure!(seen.len() > 1, "{}: only {} container was seen", stop.file, seen.len());
        let shared: BTreeSet<String> = seen.into_iter().collect();
        ensure!(shared.len() == 1, "{}: containers do not share one GPU: {shared:?}", stop.file);
        return Ok(shared.into_iter().collect());
    }
    Ok(seen)
}

async fn show_waiting(
    client: &Client,
    state_dir: &Path,
    octavo: &Path,
    names: &[String],
    say: &mut impl FnMut(&str),
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for name in names {
        objects::wait_until_unschedulable(&pods, name, PATIENCE).await?;
        let output = tokio::process::Command::new(octavo)
            .args(["explain", "pod", name, "--namespace", NAMESPACE, "--kubeconfig"])
            .arg(state_dir.join("kubeconfig"))
            .output()
            .await
            .with_context(|| format!("run {} explain", octavo.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // 3 is "it waits", as the command's help says.
        if output.status.code() != Some(3) {
            bail!(
                "octavo explain pod {name} ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        ensure!(text.contains(name.as_str()), "octavo explain does not name {name}: {text}");
        ensure!(text.contains("9 GPUs"), "octavo explain does not say why {name} waits: {text}");
        for line in text.lines() {
            say(&format!("   | {line}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_two_claims_have_is_noticed() {
        let mut given = Given::default();
        given.add("one.yaml", vec!["a /dev/nvidia0".into(), "a /dev/nvidia1".into()]).unwrap();
        given.add("two.yaml", vec!["b /dev/nvidia0".into()]).unwrap();
        let error = given.add("three.yaml", vec!["a /dev/nvidia1".into()]).unwrap_err().to_string();
        assert!(error.contains("one.yaml") && error.contains("three.yaml"), "{error}");
        assert!(given.add("four.yaml", vec!["c d".into(), "c d".into()]).is_err());
    }

    #[test]
    fn a_gpu_is_what_its_pod_selects_or_not() {
        let model = |name| crate::hardware::catalogue::load(name).unwrap().model;
        assert_eq!(is_selected("selects-product", &model("dgx-h100")), Some(true));
        assert_eq!(is_selected("selects-product", &model("dgx-a100-80")), Some(false));
        assert_eq!(is_selected("selects-memory", &model("dgx-a100-80")), Some(true));
        assert_eq!(is_selected("selects-memory", &model("dgx-h100")), Some(false));
        assert_eq!(is_selected("another", &model("t4")), None);
    }
}
