//! The cases: their clusters, their sizes, and how they run.

use std::time::Duration;

use super::case::Case;
use super::objects::Gpus;
use super::results::{Compared, Measured};
use super::testbed::{ClusterSpec, Testbed};

mod backlog;
mod create_to_bound;
mod defragmentation;
mod fill;
mod full;
mod gang;
mod gang_nics;
mod gang_repair;
mod long_grace;
mod mig;
mod mixed_shapes;
mod node_churn;
mod rack_loss;
mod restart;
mod restart_claims;
mod throughput;

/// How long it took to bind all; absent where not all were bound.
pub(super) const ALL_BOUND: &str = "first create to all bound";
/// The quantity that throughput is compared by.
pub(super) const RATE: &str = "rate";
/// How gangs are compared.
pub(super) const GANG_COMPARED: [Compared; 2] = gang::COMPARED;

/// The cluster of a case.
pub(super) fn cluster(case: Case, scale: f64) -> ClusterSpec {
    let (nodes, gpus, gangs) = match case {
        Case::Pods => (1_000, Gpus::None, false),
        Case::Claims => (100, Gpus::Dra, false),
        Case::GpusByDevices => (500, Gpus::Dra, false),
        Case::Gang => (512, Gpus::Plain, true),
        Case::GangNics => (gang_nics::NODES, Gpus::DraWithNics, true),
        Case::GangRepair => (gang_repair::NODES, Gpus::Dra, true),
        Case::Gpus | Case::MixedShapes | Case::LongGrace | Case::NodeChurn => {
            (500, Gpus::Plain, false)
        }
        Case::Full | Case::Backlog | Case::RackLoss => (500, Gpus::Plain, true),
        Case::RestartClaims => (501, Gpus::Dra, false),
        Case::Mig => (500, Gpus::Mig, false),
        Case::Defragmentation => (defragmentation::NODES, Gpus::Plain, true),
    };
    let moves = if case == Case::Defragmentation { defragmentation::MAX_MOVES } else { 0 };
    let least = match case {
        Case::Full => full::MIN_NODES,
        Case::Defragmentation => defragmentation::MIN_NODES,
        Case::GangNics => gang_nics::MIN_NODES,
        Case::GangRepair => gang_repair::MIN_NODES,
        Case::LongGrace => long_grace::MIN_NODES,
        Case::RackLoss => rack_loss::MIN_NODES,
        Case::RestartClaims => 2,
        _ => 1,
    };
    let controller = case == Case::RackLoss;
    ClusterSpec { nodes: scaled(nodes, scale).max(least), gpus, gangs, moves, controller }
}

/// The number in the title of a case: pods, gangs, nodes or claims.
pub(super) fn count(case: Case, scale: f64) -> usize {
    let ClusterSpec { nodes, .. } = cluster(case, scale);
    match case {
        Case::Pods | Case::Claims | Case::Gpus | Case::GpusByDevices => {
            throughput::pods(case, nodes)
        }
        Case::MixedShapes => mixed_shapes::shapes(nodes).len(),
        Case::Gang => scaled(gang::PODS, scale),
        Case::GangNics => gang_nics::gangs(nodes),
        Case::GangRepair => gang_repair::members(nodes),
        Case::Full => nodes * 8,
        Case::RestartClaims => restart_claims::claims(nodes),
        Case::Backlog => backlog::waiting(scale),
        Case::LongGrace => long_grace::PREEMPTORS,
        Case::NodeChurn => scaled(node_churn::NODES, scale),
        Case::RackLoss => rack_loss::pods(nodes),
        Case::Mig => scaled(mig::PODS, scale),
        Case::Defragmentation => defragmentation::gangs(nodes),
    }
}

/// Measures one turn.
pub(super) async fn run(
    testbed: &Testbed,
    case: Case,
    scale: f64,
    timeout: Duration,
    measured: &mut Measured,
) -> anyhow::Result<()> {
    let count = count(case, scale);
    match case {
        Case::Pods | Case::Claims | Case::Gpus | Case::GpusByDevices => {
            throughput::run(testbed, case, timeout, measured).await
        }
        Case::MixedShapes => mixed_shapes::run(testbed, timeout, measured).await,
        Case::Gang => gang::run(testbed, count, measured).await,
        Case::GangNics => gang_nics::run(testbed, measured).await,
        Case::GangRepair => gang_repair::run(testbed, measured).await,
        Case::Full => full::run(testbed, measured).await,
        Case::Backlog => backlog::run(testbed, scale, measured).await,
        Case::LongGrace => long_grace::run(testbed, measured).await,
        Case::NodeChurn => node_churn::run(testbed, count, measured).await,
        Case::RackLoss => rack_loss::run(testbed, measured).await,
        Case::RestartClaims => restart_claims::run(testbed, measured).await,
        Case::Mig => mig::run(testbed, count, timeout, measured).await,
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
