//! Why the pods of a group wait before any placement is tried.

use octavo_engine::gang::MAX_MEMBERS;

/// Why a group, or a pod's part in one, is invalid or unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The object that announces the group does not exist.
    #[error(
        "{group} does not exist: create it, or remove the pod's label or field that names it; if it exists, check \
         whether Octavo may watch its kind"
    )]
    GroupNotFound {
        /// The group.
        group: String,
    },
    /// A Job's pods refer to its own size, and the Job is not observed.
    #[error(
        "{group} is not observed, although its pods have {key}: \"true\"; put the label {key}: \"true\" on \
         the Job itself too, or write the number of pods instead of \"true\"",
        key = octavo_api::names::GANG
    )]
    JobNotFound {
        /// The group.
        group: String,
    },
    /// The pod names none of several subgroups.
    #[error("{group} has the subgroups {known}; name the pod's subgroup with the label {key}")]
    SubgroupUnspecified {
        /// The group.
        group: String,
        /// The label.
        key: &'static str,
        /// Names of its subgroups.
        known: String,
    },
    /// The pod names a subgroup that does not exist.
    #[error("{group} has no subgroup {found:?}, which the pod names; it has: {known}")]
    UnknownSubgroup {
        /// The group.
        group: String,
        /// The name.
        found: String,
        /// Names of its subgroups.
        known: String,
    },
    /// A field has an invalid value.
    #[error("{group}: {field} is {found}, but it must be {wanted}; correct it")]
    InvalidField {
        /// The group.
        group: String,
        /// Path of the field.
        field: String,
        /// What it is.
        found: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// A label or annotation has an invalid value.
    #[error("{key}: {found:?} must be {wanted}; correct the label or annotation")]
    InvalidHint {
        /// Its key.
        key: &'static str,
        /// Its value.
        found: String,
        /// What it must be.
        wanted: &'static str,
    },
    /// The group has no members.
    #[error("{group} has no members; ask for at least one")]
    Empty {
        /// The group.
        group: String,
    },
    /// The group has too many members.
    #[error("{group} has {count} members, but at most {MAX_MEMBERS} are possible")]
    TooMany {
        /// The group.
        group: String,
        /// Members.
        count: u64,
    },
    /// Two subgroups have the same name.
    #[error("{group} has two subgroups named {sub:?}; name them differently")]
    DuplicateSubgroup {
        /// The group.
        group: String,
        /// The name.
        sub: String,
    },
    /// The group's minimum contradicts those of its subgroups.
    #[error(
        "{group} needs at least {min} members, but its subgroups need {sum} together; make the numbers \
         equal, or leave out the minimum of the whole group"
    )]
    MinimumsDiffer {
        /// The group.
        group: String,
        /// The minimum of all.
        min: u64,
        /// The sum of the subgroups' minimums.
        sum: u64,
    },
    /// The minimum is above the number of members.
    #[error("{group} needs at least {min} members, but will have only {count}; lower the minimum")]
    MinimumAboveCount {
        /// The group.
        group: String,
        /// The minimum.
        min: u64,
        /// The number of members.
        count: u64,
    },
    /// The segment size does not divide a subgroup.
    #[error(
        "{group}, subgroup {sub:?}: segments of {size} members do not divide {min} members; choose a \
         size that does"
    )]
    UnevenSegments {
        /// The group.
        group: String,
        /// The subgroup.
        sub: String,
        /// Members of a segment.
        size: u32,
        /// Members of the subgroup.
        min: u32,
    },
    /// The topology has no such level.
    #[error(
        "{group}: {field} names the topology level {found:?}, which does not exist; existing levels: {known}"
    )]
    UnknownLevel {
        /// The group.
        group: String,
        /// What names it.
        field: String,
        /// The level.
        found: String,
        /// The levels there are.
        known: String,
    },
    /// A feature that Octavo does not support.
    #[error("{group}: {what} is not supported; {hint}")]
    Unsupported {
        /// The group.
        group: String,
        /// What is asked for.
        what: String,
        /// What to do instead.
        hint: &'static str,
    },
    /// The gang annotation on a pod that does not belong to a Job.
    #[error(
        "{key} is for pods of a Job, and this pod's controller is {owner}; make a PodGroup and name it \
         with the label {label}",
        key = octavo_api::names::GANG,
        label = octavo_api::names::POD_GROUP
    )]
    NotOfAJob {
        /// What controls the pod.
        owner: String,
    },
}

impl GroupError {
    /// Reason of conditions and events, and label of metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::GroupNotFound { .. } | Self::JobNotFound { .. } => "PodGroupNotFound",
            Self::SubgroupUnspecified { .. } | Self::UnknownSubgroup { .. } => "SubgroupNotFound",
            Self::TooMany { .. } => "PodGroupTooLarge",
            Self::UnknownLevel { .. } => "TopologyLevelNotFound",
            Self::Unsupported { .. } => "NotSupported",
            _ => "InvalidPodGroup",
        }
    }
}
