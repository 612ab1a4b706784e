//! The cases: who takes part, for how long, and how they are named.

use std::time::Duration;

use clap::ValueEnum;

use super::cases;
use super::contender::Contender;
use super::results::Compared;
use super::testbed::ClusterSpec;

/// A case, or several that one cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Case {
    /// 5,000 plain pods on 1,000 nodes.
    Pods,
    /// 800 claims made from a template on 100 nodes of 8 GPUs.
    Claims,
    /// 4,000 pods with nvidia.com/gpu: 1 on 500 nodes that offer 8 as an amount, without and beside a
    /// `DeviceClass` for that resource.
    Gpus,
    /// The same where the GPUs are devices in slices.
    GpusByDevices,
    /// Pods of none to eight GPUs, mixed, for nine tenths of the GPUs of 500 nodes.
    MixedShapes,
    /// A gang of 512 pods on 512 nodes.
    Gang,
    /// 16 gangs of 32 pods, each with a GPU and a NIC of the same PCIe root, on 64 nodes.
    GangNics,
    /// A gang of 512 pods on 80 nodes, of which one after another is deleted, or loses its GPU, and comes back.
    GangRepair,
    /// On 500 nodes with 4,000 running pods: gangs that do not fit, preemption, restart.
    Full,
    /// The same with 10,000 pods and 50 gangs that wait, while other pods end.
    Backlog,
    /// Victims with a grace period of minutes, and one that never ends.
    LongGrace,
    /// 200 nodes are added one by one to 500 full ones, then removed, while pods come.
    NodeChurn,
    /// A rack of 16 nodes is not ready for 120 seconds, gets the taint `node.kubernetes.io/out-of-service`, and
    /// returns. Then a single node is lost. Octavo's controller deletes the members of gangs, as in the chart.
    /// The taint waits for no budget, and without it the nodes count as cut off: nothing is deleted.
    RackLoss,
    /// Restarts with 4,000 allocated claims on 500 nodes.
    RestartClaims,
    /// 50 pods with a MIG device on 500 nodes whose GPUs are all opted in to dynamic MIG.
    Mig,
    /// 41 gangs for which pods have to move.
    Defragmentation,
}

impl Case {
    /// All cases, in the order in which they run.
    pub(super) const ALL: [Self; 16] = [
        Self::Pods,
        Self::Claims,
        Self::Gpus,
        Self::GpusByDevices,
        Self::MixedShapes,
        Self::Gang,
        Self::GangNics,
        Self::GangRepair,
        Self::Full,
        Self::Backlog,
        Self::LongGrace,
        Self::NodeChurn,
        Self::RackLoss,
        Self::RestartClaims,
        Self::Mig,
        Self::Defragmentation,
    ];

    /// The contenders of the case.
    pub(super) fn contenders(self) -> &'static [Contender] {
        match self {
            Self::Pods | Self::Claims | Self::GpusByDevices => {
                &[Contender::Raw, Contender::Kube, Contender::Octavo]
            }
            Self::Gpus => &[
                Contender::Raw,
                Contender::Kube,
                Contender::KubeWithClass,
                Contender::Octavo,
                Contender::OctavoWithClass,
            ],
            Self::Gang => &[Contender::Raw, Contender::Octavo],
            Self::MixedShapes
            | Self::GangNics
            | Self::Full
            | Self::Backlog
            | Self::LongGrace
            | Self::NodeChurn
            | Self::RestartClaims
            | Self::Mig => &[Contender::Kube, Contender::Octavo],
            Self::GangRepair | Self::RackLoss | Self::Defragmentation => &[Contender::Octavo],
        }
    }

    /// Title of the case in the report.
    pub(super) fn title(self, scale: f64) -> String {
        let ClusterSpec { nodes, .. } = cases::cluster(self, scale);
        let gpus = format!("{nodes} x 8 GPUs");
        let count = cases::count(self, scale);
        match self {
            Self::Pods => format!("{count} plain pods on {nodes} nodes"),
            Self::Claims => format!("{count} template claims on {gpus}"),
            Self::Gpus => {
                format!("{count} pods with nvidia.com/gpu: 1 on {nodes} x 8, an amount of the node")
            }
            Self::GpusByDevices => {
                format!("{count} pods with nvidia.com/gpu: 1 on {nodes} x 8, by devices")
            }
            Self::MixedShapes => format!("{count} pods of none to 8 GPUs on {gpus}"),
            Self::Gang => format!("gang of {count} pods of 2 GPUs on {nodes} nodes"),
            Self::GangNics => format!("{count} gangs of 32 x GPU and NIC on {nodes} x 8"),
            Self::GangRepair => format!("gang of {count} pods on {gpus}, members come back"),
            Self::Full => format!("{count} running pods on {gpus}"),
            Self::Backlog => format!("{count} pods wait for {gpus}, and pods end"),
            Self::LongGrace => format!("{count} preemptors on {gpus}, victims with long grace"),
            Self::NodeChurn => format!("{count} nodes added to {gpus} and removed"),
            Self::RackLoss => {
                format!("{count} running pods on {gpus}, a rack is lost, shut down and returns")
            }
            Self::RestartClaims => format!("restart with {count} claims on {gpus}"),
            Self::Mig => format!("{count} MIG pods on {gpus}, all opted in"),
            Self::Defragmentation => {
                format!("{gpus}, 3 of each taken, then {count} gangs of 10 x 6 GPUs")
            }
        }
    }

    /// Default timeout for binding all pods.
    pub(super) fn timeout(self) -> Duration {
        match self {
            // kube-scheduler takes far longer for this than a benchmark can wait.
            Self::GpusByDevices => Duration::from_mins(4),
            Self::Mig => Duration::from_mins(5),
            _ => Duration::from_mins(15),
        }
    }

    /// Quantities by which contenders are compared.
    pub(super) fn compared(self) -> &'static [Compared] {
        const RATES: &[Compared] = &[Compared::Rate { what: cases::RATE, least_of_raw: 80.0 }];
        match self {
            Self::Pods | Self::Claims | Self::Gpus | Self::GpusByDevices | Self::MixedShapes => {
                RATES
            }
            Self::Gang => &cases::GANG_COMPARED,
            _ => &[],
        }
    }

    /// Notes on contenders without figures.
    pub(super) fn notes(self) -> &'static [&'static str] {
        match self {
            Self::Gang | Self::GangRepair | Self::Defragmentation => {
                &["kube-scheduler has no gangs"]
            }
            Self::GangNics => &["kube-scheduler has no gangs: it places the pods one by one"],
            Self::Full => &["kube-scheduler has no gangs: preemption and restart only"],
            Self::Backlog => &["50 gangs wait, too, with Octavo alone"],
            Self::LongGrace => &["the victim that never ends: with Octavo alone"],
            Self::RackLoss => &[
                "kube-scheduler deletes no pods of lost nodes",
                "Octavo's controller deletes them, as in the chart",
            ],
            _ => &[],
        }
    }
}
