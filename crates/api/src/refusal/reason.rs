//! The stable reason of each refusal.

use super::Refusal;

/// Defines [`Refusal::reason`], and [`Refusal::REASONS`] from the same list. The match is exhaustive, so the list is
/// complete.
macro_rules! reasons {
    ($($variant:ident => $reason:literal,)*) => {
        impl Refusal {
            /// All values of [`Refusal::reason`].
            pub const REASONS: &[&str] = &[$($reason),*];

            /// Stable CamelCase reason for conditions, events and metric labels.
            pub fn reason(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $reason,)*
                }
            }
        }
    };
}

reasons! {
    BadClaimUid => "BadClaimUid",
    ClaimNotFound => "ClaimNotFound",
    ClaimReplaced => "ClaimReplaced",
    NotAllocated => "NotAllocated",
    NothingForDriver => "NothingForDriver",
    OtherNode => "OtherNode",
    UnknownDevice => "UnknownDevice",
    DeviceInUse => "DeviceInUse",
    DeviceNotFreed => "DeviceNotFreed",
    DeviceMayBeInUse => "DeviceMayBeInUse",
    InvalidShare => "InvalidShare",
    ShareDoesNotFit => "ShareDoesNotFit",
    EnforcementNotReady => "EnforcementNotReady",
    SharingNotSet => "SharingNotSet",
    SharingNotReset => "SharingNotReset",
    MpsNotReady => "MpsNotReady",
    MigPlacementTaken => "MigPlacementTaken",
    MigProfileMissing => "MigProfileMissing",
    MigModeNotChanged => "MigModeNotChanged",
    MigModeNeedsReset => "MigModeNeedsReset",
    MigInstancesInTheWay => "MigInstancesInTheWay",
    MigNotCreated => "MigNotCreated",
    MigNotDestroyed => "MigNotDestroyed",
    MigNotUsable => "MigNotUsable",
    DriverClosed => "DriverClosed",
    LentToPlugin => "LentToPlugin",
    LayoutChanges => "LayoutChanges",
    InvalidConfig => "InvalidConfig",
    ConfigMismatch => "ConfigMismatch",
    NotYetSupported => "NotYetSupported",
    KernelModuleMissing => "KernelModuleMissing",
    NotInComputeDomain => "NotInComputeDomain",
    ComputeDomainNotReady => "ComputeDomainNotReady",
    FabricNotReady => "FabricNotReady",
    HookNotReady => "HookNotReady",
    NotReady => "NotReady",
    ApiUnavailable => "ApiUnavailable",
    Storage => "Storage",
    HandedOver => "HandedOver",
    Interrupted => "Interrupted",
}
