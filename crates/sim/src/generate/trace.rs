//! Traces of synthetic clusters in openb's format, with times. Pods arrive independently of one
//! another (Poisson). Their lifetimes are log-normally distributed. The format has no gangs,
//! tenants and MIG.

use super::demand;
use super::machines::MachineSpec;
use super::mix::WorkloadKind;
use super::nodes;
use super::random::Random;
use super::{GenerateError, Options};
use octavo_engine::{GpuDemand, Resources, Shape};

/// Most pods of a trace.
const MAX_PODS: u64 = 4_000_000;

/// Spread of the logarithm of lives: half of all pods live for less than a third of the mean.
const LIFETIME_SIGMA: f64 = 1.5;

/// Pods of each class in a hundred: none, share, one GPU, several. The weights are openb's, with
/// more pods of several GPUs (0.9 there), so that they matter in a small cluster.
const POD_CLASSES: [(u32, PodClass); 4] =
    [(13, PodClass::NoGpu), (36, PodClass::Share), (46, PodClass::One), (5, PodClass::Several)];

/// In a hundred pods with GPUs, those that name their model.
const MODEL_NAMED_PERCENT: u64 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PodClass {
    NoGpu,
    Share,
    One,
    Several,
}

/// Arrival rate and lifetime of the pods.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Length of the trace.
    pub hours: u32,
    /// GPUs requested in the long run, as a ratio of all GPUs.
    pub wanted: f64,
    /// Mean life of a pod in minutes.
    pub mean_minutes: u32,
}

impl Default for Load {
    fn default() -> Self {
        Self { hours: 24, wanted: 1.0, mean_minutes: 120 }
    }
}

/// Lists as CSV.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceLists {
    /// The node list.
    pub nodes: String,
    /// The pod list.
    pub pods: String,
    /// Pods in it.
    pub pod_count: u64,
}

pub(super) fn lists(options: &Options, load: &Load) -> Result<TraceLists, GenerateError> {
    if !(load.wanted > 0.0 && load.wanted <= 100.0) {
        return Err(GenerateError::Amount {
            what: "the load",
            value: load.wanted.to_string(),
            wanted: "above 0 and at most 100: requested GPUs as a ratio of all GPUs",
        });
    }
    let machines = nodes::machines(options)?;
    let snapshot = nodes::cluster(options)?;
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(["sn", "cpu_milli", "memory_mib", "gpu", "model"])?;
    let mut capacity = 0;
    for node in &snapshot.nodes {
        let Some(class) = snapshot.classes.get(&node.class) else { continue };
        capacity += u64::from(class.gpus) * 1000;
        writer.write_record([
            node.name.as_str(),
            &class.capacity.cpu_milli.to_string(),
            &class.capacity.memory_mib.to_string(),
            &class.gpus.to_string(),
            class.model.as_deref().unwrap_or_default(),
        ])?;
    }
    let nodes = text(writer)?;
    let (pods, pod_count) = pods(options, load, &machines, capacity)?;
    Ok(TraceLists { nodes, pods, pod_count })
}

fn pods(
    options: &Options,
    load: &Load,
    machines: &[MachineSpec],
    capacity: u64,
) -> Result<(String, u64), GenerateError> {
    let mut random = Random::new(options.seed, "pods");
    let life = f64::from(load.mean_minutes) * 60.0;
    // Little's law: requested GPUs are the arrival rate times the lifetime.
    let gap = mean_milli(options.seed, machines) * life / (load.wanted * float(capacity));
    let end = f64::from(load.hours) * 3600.0;
    let expected = whole(end / gap);
    if expected > MAX_PODS {
        return Err(GenerateError::TooManyPods { pods: expected, most: MAX_PODS });
    }
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "name",
        "cpu_milli",
        "memory_mib",
        "num_gpu",
        "gpu_milli",
        "gpu_spec",
        "qos",
        "pod_phase",
        "creation_time",
        "deletion_time",
        "scheduled_time",
    ])?;
    let (mut now, mut count) = (0.0, 0_u64);
    loop {
        now += random.exponential(gap);
        if now >= end {
            break;
        }
        count += 1;
        let machine = &machines[random.index(machines.len())];
        let shape = pod(machine, &mut random);
        let is_named = shape.gpus.is_some() && random.chance(MODEL_NAMED_PERCENT);
        let created = whole(now);
        // Pods that outlive the list leave at its end. A few long lifetimes would otherwise stretch
        // the list by weeks.
        let deleted =
            (created + whole(random.log_normal(life, LIFETIME_SIGMA)).max(1)).min(whole(end));
        writer.write_record([
            format!("pod-{count:06}"),
            shape.resources.cpu_milli.to_string(),
            shape.resources.memory_mib.to_string(),
            shape.gpus.count().to_string(),
            shape.gpus.milli().to_string(),
            if is_named { machine.model.name.clone() } else { String::new() },
            "LS".to_owned(),
            "Succeeded".to_owned(),
            created.to_string(),
            deleted.to_string(),
            String::new(),
        ])?;
    }
    Ok((text(writer)?, count))
}

fn pod(machine: &MachineSpec, random: &mut Random) -> Shape {
    let class = random.weighted(&POD_CLASSES).copied().unwrap_or(PodClass::NoGpu);
    let of = |kind, random: &mut Random| demand::shape(kind, machine, random);
    let shape = match class {
        PodClass::NoGpu => None,
        PodClass::Share => of(WorkloadKind::Share, random),
        PodClass::One => of(WorkloadKind::One, random),
        PodClass::Several => several(machine, random),
    };
    shape.unwrap_or_else(|| {
        let cores = i64::try_from(random.between(1, 16)).unwrap_or(1);
        Shape::new(Resources::of_pod(cores * 1000, cores * 4096), GpuDemand::None)
    })
}

/// Two, four, ... GPUs of a node, up to all of them.
fn several(machine: &MachineSpec, random: &mut Random) -> Option<Shape> {
    let mut sizes = Vec::new();
    let mut size = 2;
    while size <= machine.gpus {
        sizes.push((1, size));
        size *= 2;
    }
    let count = *random.weighted(&sizes)?;
    let one = demand::shape(WorkloadKind::One, machine, random)?.resources;
    let times = i64::from(count);
    let resources = Resources::of_pod(one.cpu_milli * times, one.memory_mib * times);
    Some(Shape::new(resources, GpuDemand::Whole { count }))
}

/// Mean GPU request of a pod, in thousandths of GPUs, over a sample of drawn pods.
fn mean_milli(seed: u64, machines: &[MachineSpec]) -> f64 {
    const SAMPLE_PODS: u64 = 20_000;
    let mut random = Random::new(seed, "mean");
    let mut milli = |_| {
        let machine = &machines[random.index(machines.len())];
        u64::try_from(pod(machine, &mut random).gpus.total_milli()).unwrap_or_default()
    };
    let sum: u64 = (0..SAMPLE_PODS).map(&mut milli).sum();
    float(sum.max(1)) / float(SAMPLE_PODS)
}

fn text(writer: csv::Writer<Vec<u8>>) -> Result<String, GenerateError> {
    let bytes = writer.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Whole seconds, so that the last digits of a logarithm do not matter.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and what is too large is cut"
)]
fn whole(amount: f64) -> u64 {
    amount.clamp(0.0, 9e9) as u64
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^53")]
fn float(amount: u64) -> f64 {
    amount as f64
}
