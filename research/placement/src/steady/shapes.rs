//! The sets of shapes: openb's published lists, and three that no rule was tuned on.

use std::path::Path;

use anyhow::Context;
use octavo_sim::generate::random::Random;
use octavo_sim::generate::{self, Load, Machine, Options};
use octavo_sim::trace::{NodeRow, PodRow, Trace, nodes_from, pods_from};

/// Where the lists are, from the root of the repository.
const DATA: &str = "crates/sim/data/openb";
/// The lists on which rules may be tuned.
const LISTS: [&str; 5] = ["default", "gpushare40", "multigpu20", "gpuspec10", "cpu200"];

/// Nodes to draw from, and shapes to draw from.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name in tables.
    pub name: String,
    /// The nodes.
    pub nodes: Vec<NodeRow>,
    /// A pod for each shape, as often as it is wanted.
    pub shapes: Vec<PodRow>,
}

/// All sets of shapes; the last three are for tests only.
pub fn workloads() -> anyhow::Result<Vec<Workload>> {
    let nodes = Path::new(DATA).join("openb_node_list_gpu_node.csv");
    let mut workloads = Vec::new();
    for list in LISTS {
        let pods = Path::new(DATA).join(format!("openb_pod_list_{list}.csv"));
        let trace = Trace::read(&nodes, &pods).context("run this from the repository's root")?;
        workloads.push(Workload { name: list.to_owned(), nodes: trace.nodes, shapes: trace.pods });
    }
    let default = workloads[0].clone();
    workloads.push(named(&default));
    workloads.push(shared(&default));
    workloads.push(synthetic()?);
    Ok(workloads)
}

/// Pods of several GPUs ten times as often, and every third pod with GPUs names a model: that of a
/// drawn GPU.
fn named(list: &Workload) -> Workload {
    let mut random = Random::new(1, "named");
    let gpus: Vec<&NodeRow> = list
        .nodes
        .iter()
        .flat_map(|node| std::iter::repeat_n(node, usize::try_from(node.gpus).unwrap_or(0)))
        .collect();
    let mut shapes = Vec::new();
    for pod in &list.shapes {
        for _ in 0..if pod.num_gpu > 1 { 10 } else { 1 } {
            let mut pod = pod.clone();
            if pod.num_gpu > 0 && random.below(3) == 0 {
                // A model has nodes that are large enough for the pod.
                let node = loop {
                    let node = gpus[random.index(gpus.len())];
                    if node.gpus >= pod.num_gpu && node.cpu_milli >= pod.cpu_milli {
                        break node;
                    }
                };
                pod.models = vec![node.model.clone()];
            }
            shapes.push(pod);
        }
    }
    Workload { name: "many several, named".to_owned(), nodes: list.nodes.clone(), shapes }
}

/// Shares and pods of several GPUs only, each with half as much CPU again, and twice as many pods
/// without GPUs.
fn shared(list: &Workload) -> Workload {
    let mut shapes = Vec::new();
    for pod in list.shapes.iter().filter(|pod| pod.num_gpu != 1 || pod.gpu_milli < 1000) {
        let mut pod = pod.clone();
        pod.cpu_milli += pod.cpu_milli / 2;
        let times = if pod.num_gpu == 0 { 2 } else { 1 };
        shapes.extend(std::iter::repeat_n(pod, times));
    }
    Workload { name: "shares, much CPU".to_owned(), nodes: list.nodes.clone(), shapes }
}

/// Machines and pods of `octavo sim generate`.
fn synthetic() -> anyhow::Result<Workload> {
    let machines = vec![Machine::A100Pcie, Machine::T4];
    let options = Options { machines, blocks: 4, ..Options::default() };
    let lists = generate::lists(&options, &Load::default())?;
    let nodes = nodes_from(lists.nodes.as_bytes(), "nodes")?;
    let shapes = pods_from(lists.pods.as_bytes(), "pods", &nodes)?;
    Ok(Workload { name: "synthetic".to_owned(), nodes, shapes })
}
