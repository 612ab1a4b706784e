//! XIDs, the driver's numbered errors, and their remedies.
//!
//! The table is NVIDIA's catalogue. The driver's own advice for a GPU takes precedence: the driver
//! knows what happened, and the number only classifies it.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::RecoveryAction;

/// The remedy for an XID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XidClass {
    /// The application failed, or an error was contained to it. Restart it; the GPU is healthy.
    Application,
    /// No action is needed.
    Ignore,
    /// The GPU must be reset before it does new work.
    ResetGpu,
    /// The GPU must be drained of its running work and then reset.
    DrainAndReset,
    /// Peer-to-peer traffic of the GPU must be drained, because one of its peers will be reset.
    DrainP2p,
    /// The node must be rebooted, or the virtual machine restarted.
    Reboot,
    /// The number alone does not determine the remedy: registers, other XIDs or the driver's advice
    /// do.
    Workflow,
    /// A person must check hardware or software: mechanics, versions, support.
    Support,
    /// The catalogue has no action or does not contain the number.
    Unknown,
}

/// An XID of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The number.
    pub number: u64,
    /// NVIDIA's name, such as `ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS`.
    pub mnemonic: &'static str,
    /// NVIDIA's description, such as `GPU has fallen off the bus`.
    pub description: &'static str,
    /// The remedy by number alone.
    pub class: XidClass,
}

/// The remedy for an XID, given the driver's advice for its GPU.
///
/// Advice about the GPU other than "none" decides. Other advice turns a harmless class into
/// [`XidClass::Workflow`], because the driver wants some action. It is advice about more than the
/// GPU, or unknown to this version.
pub fn classify(xid: u64, recovery_action: Option<RecoveryAction>) -> XidClass {
    let class = lookup(xid).map_or(XidClass::Unknown, |xid| xid.class);
    match recovery_action {
        Some(RecoveryAction::GpuReset) => XidClass::ResetGpu,
        Some(RecoveryAction::NodeReboot) => XidClass::Reboot,
        Some(RecoveryAction::DrainP2p) => XidClass::DrainP2p,
        Some(RecoveryAction::DrainAndReset) => XidClass::DrainAndReset,
        Some(RecoveryAction::RecoverImexDomain | RecoveryAction::Other(_))
            if class.leaves_gpu_usable() =>
        {
            XidClass::Workflow
        }
        _ => class,
    }
}

/// The catalogue's entry for an XID.
pub fn lookup(xid: u64) -> Option<&'static Xid> {
    static TABLE: LazyLock<BTreeMap<u64, Xid>> =
        LazyLock::new(|| table().map(|xid| (xid.number, xid)).collect());
    TABLE.get(&xid)
}

impl XidClass {
    /// Whether the GPU can take new work without any action.
    pub fn leaves_gpu_usable(self) -> bool {
        matches!(self, Self::Application | Self::Ignore)
    }

    /// Name in events, conditions and metrics: `reset-gpu`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Application => "application",
            Self::Ignore => "ignore",
            Self::ResetGpu => "reset-gpu",
            Self::DrainAndReset => "drain-and-reset",
            Self::DrainP2p => "drain-p2p",
            Self::Reboot => "reboot",
            Self::Workflow => "workflow",
            Self::Support => "support",
            Self::Unknown => "unknown",
        }
    }

    fn of_action(action: &str) -> Self {
        match action {
            // XID 45 cleans up after another error of the application or the GPU. That error has
            // its own XID, which determines the remedy.
            "restart_app" | "follow_other" => Self::Application,
            "none" => Self::Ignore,
            "reset_gpu" => Self::ResetGpu,
            "reboot_node" | "restart_vm" => Self::Reboot,
            "workflow" => Self::Workflow,
            "support" => Self::Support,
            // Among them `unused` and `none_listed`.
            _ => Self::Unknown,
        }
    }
}

/// The rows of the data file: a comment, a heading, then number, action, mnemonic, description.
fn table() -> impl Iterator<Item = Xid> {
    include_str!("../data/xid.csv").lines().skip(2).filter_map(row)
}

fn row(line: &'static str) -> Option<Xid> {
    // The description is last and may contain commas.
    let mut columns = line.splitn(4, ',');
    let number = columns.next()?.parse().ok()?;
    let class = XidClass::of_action(columns.next()?);
    Some(Xid { number, class, mnemonic: columns.next()?, description: columns.next()? })
}

#[cfg(test)]
mod tests;
