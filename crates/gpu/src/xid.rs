//! XIDs: the driver's numbered faults, and what each calls for.
//!
//! The table is NVIDIA's catalogue. Where the driver itself advises an action for the GPU, its
//! word goes before the table's: it knows what happened, the number only what it was called.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use crate::RecoveryAction;

/// What an XID calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum XidClass {
    /// The application failed, or a fault was contained to it: restart it, the GPU is well.
    Application,
    /// Nothing is to be done.
    Ignore,
    /// The GPU must be reset before it does new work.
    ResetGpu,
    /// The GPU must be drained of its running work and then reset.
    DrainAndReset,
    /// Peer-to-peer traffic of the GPU must be drained, for one of its peers is to be reset.
    DrainP2p,
    /// The node must be rebooted, or the virtual machine restarted.
    Reboot,
    /// The number alone does not decide: registers, other XIDs or the driver's advice do.
    Workflow,
    /// Hardware or software must be looked at by a person: mechanics, versions, support.
    Support,
    /// The catalogue lists no action, or does not know the number.
    Unknown,
}

/// An XID of the catalogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Xid {
    /// The number.
    pub number: u64,
    /// NVIDIA's name for it: `ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS`.
    pub mnemonic: &'static str,
    /// NVIDIA's words for it: `GPU has fallen off the bus`.
    pub description: &'static str,
    /// What it calls for as far as the number tells.
    pub class: XidClass,
}

/// What an XID calls for, given what the driver advises for the GPU that had it.
///
/// Advice about the GPU other than "none" decides. Advice about more than the GPU, or that this
/// version of Octavo does not know, turns a harmless class into [`XidClass::Workflow`], for the
/// driver wants something done.
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

/// An XID's entry in the catalogue.
pub fn lookup(xid: u64) -> Option<&'static Xid> {
    static TABLE: LazyLock<BTreeMap<u64, Xid>> =
        LazyLock::new(|| table().map(|xid| (xid.number, xid)).collect());
    TABLE.get(&xid)
}

impl XidClass {
    /// Whether the GPU can take new work without anything being done to it.
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
            // XID 45 is the cleanup after another fault of the application or the GPU; what is to
            // be done, that one says, with its own XID.
            "restart_app" | "follow_other" => Self::Application,
            "none" => Self::Ignore,
            "reset_gpu" => Self::ResetGpu,
            "reboot_node" | "restart_vm" => Self::Reboot,
            "workflow" => Self::Workflow,
            "support" => Self::Support,
            // `unused` and `none_listed` among them.
            _ => Self::Unknown,
        }
    }
}

/// The rows of the data file: a comment, a heading, then number, action, mnemonic, description.
fn table() -> impl Iterator<Item = Xid> {
    include_str!("../data/xid.csv").lines().skip(2).filter_map(row)
}

fn row(line: &'static str) -> Option<Xid> {
    // The description comes last and may hold commas.
    let mut columns = line.splitn(4, ',');
    let number = columns.next()?.parse().ok()?;
    let class = XidClass::of_action(columns.next()?);
    Some(Xid { number, class, mnemonic: columns.next()?, description: columns.next()? })
}

#[cfg(test)]
mod tests;
