//! The cases: their clusters, and how their figures are compared.

use std::time::Duration;

use super::Case;
use super::objects::Gpus;
use super::results::{Compared, Measured};
use super::testbed::{ClusterSpec, Testbed};

mod backlog;
mod defragmentation;
mod full;
mod gang;
mod throughput;

/// How long it took to bind all; absent where not all were bound.
pub(super) const ALL_BOUND: &str = "first create to all bound";
/// The quantity that throughput is compared by.
pub(super) const RATE: &str = "rate";

/// The cluster of a case.
pub(super) fn world(case: Case, scale: f64) -> ClusterSpec {
    let (nodes, gpus, gangs) = match case {
        Case::Pods => (1_000, Gpus::None, false),
        Case::Claims => (100, Gpus::Dra, false),
        Case::Gpus => (500, Gpus::Plain, false),
        Case::GpusByDevices => (500, Gpus::Dra, false),
        Case::Gang => (512, Gpus::Plain, true),
        Case::Full | Case::Backlog => (500, Gpus::Plain, true),
        Case::Defragmentation => (defragmentation::NODES, Gpus::Plain, true),
    };
    let moves = if case == Case::Defragmentation { defragmentation::MAX_MOVES } else { 0 };
    let least = match case {
        Case::Full => full::MIN_NODES,
        Case::Defragmentation => defragmentation::MIN_NODES,
        _ => 1,
    };
    ClusterSpec { nodes: scaled(nodes, scale).max(least), gpus, gangs, moves }
}

/// Measures one turn.
pub(super) async fn run(
    testbed: &Testbed,
    case: Case,
    scale: f64,
    timeout: Duration,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    match case {
        Case::Pods | Case::Claims | Case::Gpus | Case::GpusByDevices => {
            throughput::run(testbed, case, timeout, measured).await
        }
        Case::Gang => gang::run(testbed, scaled(gang::PODS, scale), measured).await,
        Case::Full => full::run(testbed, measured).await,
        Case::Backlog => backlog::run(testbed, scale, measured).await,
        Case::Defragmentation => defragmentation::run(testbed, measured).await,
    }
}

/// A number of things, smaller where everything is.
fn scaled(count: usize, scale: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        clippy::cast_sign_loss,
        reason = "thousands at most, and not negative"
    )]
    let scaled = (count as f64 * scale).ceil() as usize;
    scaled.max(1)
}

/// A count as a float.
fn float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

impl Case {
    /// Title of the case in the report.
    pub(super) fn title(self, scale: f64) -> String {
        let ClusterSpec { nodes, .. } = world(self, scale);
        match self {
            Self::Pods => format!("{} plain pods on {nodes} nodes", throughput::pods(self, nodes)),
            Self::Claims => {
                format!("{} template claims on {nodes} x 8 GPUs", throughput::pods(self, nodes))
            }
            Self::Gpus => {
                let pods = throughput::pods(self, nodes);
                format!("{pods} pods with nvidia.com/gpu: 1 on {nodes} x 8, an amount of the node")
            }
            Self::GpusByDevices => {
                let pods = throughput::pods(self, nodes);
                format!("{pods} pods with nvidia.com/gpu: 1 on {nodes} x 8, by devices")
            }
            Self::Gang => {
                format!("gang of {} pods of 2 GPUs on {nodes} nodes", scaled(gang::PODS, scale))
            }
            Self::Full => format!("{} running pods on {nodes} x 8 GPUs", nodes * 8),
            Self::Backlog => {
                let waiting = backlog::waiting(scale);
                format!("{waiting} pods wait for {nodes} x 8 GPUs, and pods end")
            }
            Self::Defragmentation => {
                let gangs = defragmentation::gangs(nodes);
                format!("{nodes} x 8 GPUs, 3 of each taken, then {gangs} gangs of 10 x 6 GPUs")
            }
        }
    }

    /// Default timeout for binding all pods.
    pub(super) fn timeout(self) -> Duration {
        match self {
            // kube-scheduler takes far longer for this than a benchmark can wait.
            Self::GpusByDevices => Duration::from_mins(4),
            _ => Duration::from_mins(15),
        }
    }

    /// Quantities by which contenders are compared.
    pub(super) fn compared(self) -> &'static [Compared] {
        const RATES: &[Compared] = &[Compared::Rate { what: RATE, least_of_raw: 80.0 }];
        match self {
            Self::Pods | Self::Claims | Self::Gpus | Self::GpusByDevices => RATES,
            Self::Gang => &gang::COMPARED,
            Self::Full | Self::Backlog | Self::Defragmentation => &[],
        }
    }

    /// Notes on contenders without figures.
    pub(super) fn notes(self) -> &'static [&'static str] {
        match self {
            Self::Pods | Self::Claims | Self::Gpus | Self::GpusByDevices => &[],
            Self::Gang | Self::Defragmentation => &["kube-scheduler has no gangs"],
            Self::Full => &["kube-scheduler has no gangs: preemption and restart only"],
            Self::Backlog => &["50 gangs wait, too, with Octavo alone"],
        }
    }
}
