//! `octavo lab tour`: the example manifests on the running lab, each with its expected result.
//!
//! The tour applies the manifests of a folder like a user. It waits for the expected state of each
//! and checks what the simulated containers got. Then it deletes everything and looks for
//! leftovers. It is both the demo and an end-to-end test: any deviation is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};

mod checks;
mod container;
mod leftovers;
mod objects;
mod opt_in;

use container::Container;
pub(crate) use objects::delete_namespace;
use opt_in::OptIn;

/// Longest wait for a pod to run; on a real cluster image pulls take most of it.
const POD_TIMEOUT: Duration = Duration::from_mins(3);

/// Namespace of the examples.
const NAMESPACE: &str = "octavo-tour";

/// One stop of the tour: a manifest and its expected result.
struct Stop {
    file: &'static str,
    title: &'static str,
    expected: Expected,
}

/// The expected result of a stop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expected {
    /// Every pod runs, and each container sees exactly this number of GPUs.
    GpusPerContainer(usize),
    /// As above with one GPU of the model that the pod's selector requests.
    Selected,
    /// As above with one GPU, the same for all containers of the manifest.
    OneSharedGpu,
    /// Every container has at least one share with limits, and the shares fit their GPUs.
    Shares,
    /// As above, with exactly this number of shares, all on one GPU.
    SharesOfOneGpu(usize),
    /// The containers have this number of MIG devices, all on one GPU. A node is opted in for it.
    MigOfOneGpu(usize),
    /// The pod waits, and `octavo explain pod` gives a reason that contains this text.
    Waits(&'static str),
}

const STOPS: [Stop; 11] = [
    Stop {
        file: "extended-resource.yaml",
        title: "a pod with limits nvidia.com/gpu: 1",
        expected: Expected::GpusPerContainer(1),
    },
    Stop {
        file: "claim-template.yaml",
        title: "a ResourceClaimTemplate for gpu.nvidia.com",
        expected: Expected::GpusPerContainer(1),
    },
    Stop {
        file: "shared-in-pod.yaml",
        title: "two containers of a pod share one claim",
        expected: Expected::OneSharedGpu,
    },
    Stop {
        file: "shared-claim.yaml",
        title: "two pods share one ResourceClaim",
        expected: Expected::OneSharedGpu,
    },
    Stop {
        file: "selectors.yaml",
        title: "CEL selectors on product and memory",
        expected: Expected::Selected,
    },
    Stop {
        file: "shares.yaml",
        title: "shares of memory and time, two in one container",
        expected: Expected::Shares,
    },
    Stop {
        file: "shared-share.yaml",
        title: "two pods with one share",
        expected: Expected::SharesOfOneGpu(1),
    },
    Stop {
        file: "eight-shares.yaml",
        title: "eight containers with an eighth of one GPU each",
        expected: Expected::SharesOfOneGpu(8),
    },
    Stop {
        file: "ninth-share.yaml",
        title: "a ninth eighth must wait, and why",
        expected: Expected::Waits("compute"),
    },
    Stop {
        file: "mig.yaml",
        title: "four MIG devices of one GPU, made for the pod",
        expected: Expected::MigOfOneGpu(4),
    },
    Stop {
        file: "waits.yaml",
        title: "a pod that must wait, and why",
        expected: Expected::Waits("9 GPUs"),
    },
];

/// Runs the tour over the manifests in `examples` against the lab in `state_dir`.
///
/// `octavo` is the binary that explains the waiting pod. `say` receives one line at a time.
///
/// # Errors
///
/// The first expectation that does not hold.
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
    let mut assigned = GpuAssignments::default();
    let mut opted_in = None;
    for (number, stop) in STOPS.iter().enumerate() {
        let started = Instant::now();
        say(&format!("{}. {}  ({})", number + 1, stop.title, stop.file));
        if matches!(stop.expected, Expected::MigOfOneGpu(_)) {
            opted_in = OptIn::on_any_node(client, POD_TIMEOUT, &mut say).await?;
        }
        let applied = objects::apply_file(client, &examples.join(stop.file)).await?;
        let pods = objects::pods_of(&applied);
        ensure!(!pods.is_empty(), "{} holds no pod", stop.file);
        if let Expected::Waits(why) = stop.expected {
            show_waiting(client, state_dir, octavo, &pods, why, &mut say).await?;
        } else {
            let seen = show_running(client, state_dir, &pods, &mut say).await?;
            // All pods of the tour run at the same time, so only shares may have the same GPU.
            assigned.add(stop, checks::check(state_dir, stop, &seen)?)?;
        }
        say(&format!("   took {} ms", started.elapsed().as_millis()));
    }
    say("Deleting everything, then looking for leftovers.");
    objects::delete_namespace(client, NAMESPACE, POD_TIMEOUT).await?;
    leftovers::check(client, state_dir, &before).await?;
    if let Some(opted_in) = opted_in {
        opted_in.undo(client, POD_TIMEOUT).await?;
    }
    say("Nothing is left: no CDI file, no checkpoint, no share, no MIG device, no allocation.");
    Ok(())
}

/// The GPUs of running pods, as `node device`, with the manifest that got each.
#[derive(Default)]
struct GpuAssignments {
    gpus: BTreeMap<String, &'static Stop>,
}

impl GpuAssignments {
    fn add(&mut self, stop: &'static Stop, gpus: BTreeSet<String>) -> anyhow::Result<()> {
        for gpu in gpus {
            if let Some(other) = self.gpus.insert(gpu.clone(), stop)
                && !(other.is_of_shares() && stop.is_of_shares())
            {
                bail!("{gpu} was assigned twice, to claims of {} and of {}", other.file, stop.file);
            }
        }
        Ok(())
    }
}

impl Stop {
    /// Whether its claims may have a GPU in common with others.
    fn is_of_shares(&self) -> bool {
        matches!(self.expected, Expected::Shares | Expected::SharesOfOneGpu(_))
    }
}

/// A container of a running pod.
struct SeenContainer {
    pod: String,
    node: String,
    container: Container,
}

/// Waits until the pods run, and prints what their containers got.
async fn show_running(
    client: &Client,
    state_dir: &Path,
    names: &[String],
    say: &mut impl FnMut(&str),
) -> anyhow::Result<Vec<SeenContainer>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let mut seen = Vec::new();
    for name in names {
        let pod = objects::wait_for_phase(&pods, name, "Running", POD_TIMEOUT).await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        for container in Container::all_of(state_dir, &node, &pod)? {
            let parts = container.parts();
            let of = if parts.is_empty() { String::new() } else { format!(" ({parts})") };
            let gpus = container.gpus().join(", ");
            say(&format!("   {name}/{} on {node} sees {gpus}{of}", container.name()));
            seen.push(SeenContainer { pod: name.clone(), node: node.clone(), container });
        }
    }
    Ok(seen)
}

async fn show_waiting(
    client: &Client,
    state_dir: &Path,
    octavo: &Path,
    names: &[String],
    why: &str,
    say: &mut impl FnMut(&str),
) -> anyhow::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for name in names {
        objects::wait_until_unschedulable(&pods, name, POD_TIMEOUT).await?;
        let output = tokio::process::Command::new(octavo)
            .args(["explain", "pod", name, "--namespace", NAMESPACE, "--kubeconfig"])
            .arg(state_dir.join("kubeconfig"))
            .output()
            .await
            .with_context(|| format!("run {} explain", octavo.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // Exit code 3 means that the pod waits.
        if output.status.code() != Some(3) {
            bail!(
                "octavo explain pod {name} ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
        }
        ensure!(text.contains(name.as_str()), "octavo explain does not name {name}: {text}");
        ensure!(text.contains(why), "octavo explain does not say why {name} waits: {text}");
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
        let stop = |file| STOPS.iter().find(|stop| stop.file == file).unwrap();
        let gpus = |gpus: &[&str]| gpus.iter().map(|gpu| (*gpu).to_owned()).collect();
        let mut assigned = GpuAssignments::default();
        assigned.add(stop("selectors.yaml"), gpus(&["a /dev/nvidia0", "a /dev/nvidia1"])).unwrap();
        assigned.add(stop("shares.yaml"), gpus(&["b /dev/nvidia0"])).unwrap();
        assigned.add(stop("shared-share.yaml"), gpus(&["b /dev/nvidia0"])).unwrap();
        let error = assigned.add(stop("shares.yaml"), gpus(&["a /dev/nvidia1"])).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("selectors.yaml") && error.contains("shares.yaml"), "{error}");
        assert!(assigned.add(stop("claim-template.yaml"), gpus(&["b /dev/nvidia0"])).is_err());
    }
}
