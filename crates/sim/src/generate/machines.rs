//! Machine types for synthetic clusters.
//!
//! GPU models, memory and MIG geometry are those of the real products. Other figures:
//!
//! - Power of T4, A100 and their CPUs: the tables of PWR (`Fr4nz83/PWR-plugin-kubernetes`).
//! - Power of the others: the limit in the product's data sheet, and about a tenth of it when idle.
//! - Failures of H100: 419 unexpected interruptions in 54 days on 16,384 H100 GPUs ("The Llama 3
//!   Herd of Models", 2024). That is 158 in a million hours of an eight-GPU node.
//! - Failures of the others and all prices: round guesses.

use octavo_engine::Resources;
use octavo_engine::gpu::{GpuModel, MigProfile};
use octavo_engine::node::Links;
use octavo_engine::snapshot::ClassRecord;

/// Kinds of machines, as on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Machine {
    /// 8 H100, all on NVSwitches; 4 nodes a rack
    #[value(name = "h100-8")]
    H100,
    /// 8 A100 80 GB on PCIe, two NUMA nodes, two GPUs a switch; 8 nodes a rack
    #[value(name = "a100-pcie-8")]
    A100Pcie,
    /// 8 A100 40 GB, all on NVSwitches; 4 nodes a rack
    #[value(name = "a100-8")]
    A100,
    /// 4 GB200, 18 nodes in one NVLink clique; one clique a rack
    #[value(name = "gb200-nvl72")]
    Gb200,
    /// 8 L40S on PCIe, two NUMA nodes, without MIG; 8 nodes a rack
    #[value(name = "l40s-8")]
    L40s,
    /// 2 T4, without MIG; 20 nodes a rack
    #[value(name = "t4-2")]
    T4,
}

/// The description of a machine.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// Its kind's name.
    pub name: &'static str,
    /// GPUs.
    pub gpus: u16,
    /// Their model.
    pub model: GpuModel,
    /// Nodes of a rack, unless the options set another number.
    pub nodes_per_rack: u32,
    /// Nodes of an NVLink clique, if a clique spans several nodes.
    pub clique: Option<u32>,
    capacity: Resources,
    /// GPUs of a group, from the loosest level of links to the tightest.
    groups: &'static [u16],
    cents_per_gpu_hour: u32,
    cpu_watts: (u32, u32),
    /// Two CPUs of a node are one core; a Grace core counts as half of one.
    package_cores: u16,
    hazard_ppm: u32,
}

/// MIG profiles of a GPU with seven compute and eight memory slices: thousandths of compute, memory
/// slices, possible starts, and media engines. The order is that of the name tables below.
const MIG: [(u16, u8, &[u8], bool); 7] = [
    (142, 1, &[0, 1, 2, 3, 4, 5, 6], false),
    (142, 1, &[0, 1, 2, 3, 4, 5, 6], true),
    (142, 2, &[0, 2, 4, 6], false),
    (285, 2, &[0, 2, 4], false),
    (428, 4, &[0, 4], false),
    (571, 4, &[0], false),
    (1000, 8, &[0], false),
];

/// Name and MiB of each profile, in the order of [`MIG`], which is that of the names.
type MigNames = [(&'static str, u32); 7];

const A100_40: MigNames = [
    ("1g.5gb", 4864),
    ("1g.5gb+me", 4864),
    ("1g.10gb", 9856),
    ("2g.10gb", 9856),
    ("3g.20gb", 19968),
    ("4g.20gb", 19968),
    ("7g.40gb", 40192),
];

const A100_80: MigNames = [
    ("1g.10gb", 9856),
    ("1g.10gb+me", 9856),
    ("1g.20gb", 19968),
    ("2g.20gb", 19968),
    ("3g.40gb", 40192),
    ("4g.40gb", 40192),
    ("7g.80gb", 80384),
];

const H100_80: MigNames = [
    ("1g.10gb", 9984),
    ("1g.10gb+me", 9984),
    ("1g.20gb", 20096),
    ("2g.20gb", 20096),
    ("3g.40gb", 40448),
    ("4g.40gb", 40448),
    ("7g.80gb", 81152),
];

const GB200_186: MigNames = [
    ("1g.23gb", 22528),
    ("1g.23gb+me", 22528),
    ("1g.47gb", 46592),
    ("2g.47gb", 46592),
    ("3g.93gb", 92800),
    ("4g.93gb", 92800),
    ("7g.186gb", 185_600),
];

impl Machine {
    /// The description of the machine.
    pub fn describe(self) -> MachineSpec {
        match self {
            Self::H100 => MachineSpec {
                name: "h100-8",
                gpus: 8,
                model: model("NVIDIA H100 80GB HBM3", 81559, (70, 700), Some(&H100_80)),
                nodes_per_rack: 4,
                clique: None,
                capacity: host_resources(192_000, 2_031_616),
                groups: &[],
                cents_per_gpu_hour: 300,
                cpu_watts: (40, 700),
                package_cores: 48,
                hazard_ppm: 158,
            },
            Self::A100Pcie => MachineSpec {
                name: "a100-pcie-8",
                gpus: 8,
                model: model("NVIDIA A100 80GB PCIe", 81920, (50, 300), Some(&A100_80)),
                nodes_per_rack: 8,
                clique: None,
                capacity: host_resources(128_000, 1_015_808),
                groups: &[4, 2],
                cents_per_gpu_hour: 150,
                cpu_watts: (40, 540),
                package_cores: 32,
                hazard_ppm: 120,
            },
            Self::A100 => MachineSpec {
                name: "a100-8",
                gpus: 8,
                model: model("NVIDIA A100-SXM4-40GB", 40960, (50, 400), Some(&A100_40)),
                nodes_per_rack: 4,
                clique: None,
                capacity: host_resources(96_000, 1_114_112),
                groups: &[],
                cents_per_gpu_hour: 130,
                cpu_watts: (40, 540),
                package_cores: 24,
                hazard_ppm: 120,
            },
            Self::Gb200 => MachineSpec {
                name: "gb200-nvl72",
                gpus: 4,
                model: model("NVIDIA GB200", 189_471, (120, 1200), Some(&GB200_186)),
                nodes_per_rack: 18,
                clique: Some(18),
                capacity: host_resources(144_000, 884_736),
                groups: &[],
                cents_per_gpu_hour: 800,
                cpu_watts: (60, 600),
                package_cores: 36,
                hazard_ppm: 150,
            },
            Self::L40s => MachineSpec {
                name: "l40s-8",
                gpus: 8,
                model: model("NVIDIA L40S", 46068, (35, 350), None),
                nodes_per_rack: 8,
                clique: None,
                capacity: host_resources(128_000, 1_015_808),
                groups: &[4],
                cents_per_gpu_hour: 90,
                cpu_watts: (40, 540),
                package_cores: 32,
                hazard_ppm: 60,
            },
            Self::T4 => MachineSpec {
                name: "t4-2",
                gpus: 2,
                model: model("Tesla T4", 15360, (10, 70), None),
                nodes_per_rack: 20,
                clique: None,
                capacity: host_resources(96_000, 385_024),
                groups: &[],
                cents_per_gpu_hour: 30,
                cpu_watts: (40, 330),
                package_cores: 24,
                hazard_ppm: 30,
            },
        }
    }
}

impl MachineSpec {
    /// Resources of the node for pods.
    pub fn capacity(&self) -> Resources {
        self.capacity
    }

    /// Its class in a document.
    pub fn class(&self) -> ClassRecord {
        let group = |size: &u16| {
            let of = |gpu: u16| u8::try_from(gpu / size).unwrap_or(u8::MAX);
            (0..self.gpus).map(of).collect::<Vec<_>>()
        };
        // A level with all GPUs in one group carries no information.
        let parts = |level: &Vec<u8>| level.iter().any(|group| *group > 0);
        ClassRecord {
            capacity: self.capacity,
            gpus: self.gpus,
            model: Some(self.model.name.clone()),
            links: Links(self.groups.iter().map(group).filter(parts).collect()),
            cents_per_hour: self.cents_per_gpu_hour * u32::from(self.gpus),
            idle_watts: self.cpu_watts.0,
            full_watts: self.cpu_watts.1,
            package_cores: self.package_cores,
            hazard_ppm: self.hazard_ppm,
            ..ClassRecord::default()
        }
    }
}

fn host_resources(cpu_milli: i64, memory_mib: i64) -> Resources {
    // Kubernetes' default of pods a node.
    Resources { cpu_milli, memory_mib, pods: 110 }
}

fn model(
    name: &str,
    memory_mib: u32,
    (idle_watts, full_watts): (u32, u32),
    profiles: Option<&MigNames>,
) -> GpuModel {
    let shapes = MIG.iter().zip(profiles.into_iter().flatten());
    let mut mig: Vec<_> = shapes
        .map(|((milli, size, starts, has_media), (name, memory_mib))| MigProfile {
            name: (*name).to_owned(),
            milli: *milli,
            memory_mib: *memory_mib,
            size: *size,
            starts: starts.to_vec(),
            has_media: *has_media,
        })
        .collect();
    mig.sort();
    GpuModel { name: name.to_owned(), memory_mib, idle_watts, full_watts, mig }
}
