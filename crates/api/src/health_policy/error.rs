//! Errors of policies.

/// Why a policy is invalid. Nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// No labels.
    #[error(
        "nodeSelector: it is empty; name at least one label of the nodes to which the policy applies"
    )]
    NoSelector,
    /// A number that is too low or too high.
    #[error("{field}: it is {found}, and must be from {least} to {most}")]
    OutOfRange {
        /// Path of the field.
        field: &'static str,
        /// The value as written.
        found: i64,
        /// The least that is valid.
        least: i64,
        /// The most that is valid.
        most: i64,
    },
    /// An XID that the driver does not report.
    #[error("xidClasses.{number}: NVIDIA's catalogue says that this XID is not used; remove it")]
    UnusedXid {
        /// The XID.
        number: u32,
    },
    /// A template that cannot be used.
    #[error("template.{field}: {problem}")]
    Template {
        /// The field of the template.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A move that costs more than a failure.
    #[error(
        "preventiveDrain: a move costs {price} s, with checkpoint, planned restart and test, and a failure costs less; \
         correct the times, or leave preventiveDrain out"
    )]
    DearMove {
        /// What a move costs, in seconds of a GPU.
        price: u64,
    },
    /// Agent and template are both to reboot nodes.
    #[error(
        "rebootBy: it is Agent, and template.remedies has reboot, too; leave one of the two out"
    )]
    TwoReboot,
    /// A ladder that is none.
    #[error(
        "remedies: each must be harsher than the one before it, and test and replace are none; the order is \
         resetFunction, resetBus, reloadDriver, reboot, powerCycle"
    )]
    Ladder,
}
