//! What moving to Octavo takes, as pure functions: pods for HAMi and KAI Scheduler are translated, NVIDIA's state is read, and the move
//! of a cluster is planned.
//!
//! ```text
//! text --manifests--> documents --workload--> pods --hami, kai--> demands and a selection of GPUs
//!      --template--> ResourceClaimTemplates and the changed pod, or all the reasons why not
//! ```
//!
//! HAMi's rules are those of its `pkg/device/nvidia` and `pkg/device` (2.10), KAI Scheduler's those of `pkg/binder` and
//! `docs/gpu-sharing` (0.13). Nothing is translated in part: a pod with one refusal stays as it is.
//!
//! [`checkpoint`] reads what NVIDIA's DRA driver has given to the claims of a node. [`plan`](mod@plan) says beforehand what moving a
//! cluster will do.
//!
//! No I/O.

#![forbid(unsafe_code)]

mod admission;
pub mod checkpoint;
mod demand;
mod hami;
mod json;
mod kai;
mod keys;
mod manifests;
mod metadata;
mod models;
pub mod plan;
mod pod;
mod quantity;
mod report;
mod selection;
mod stored;
mod template;
#[cfg(test)]
mod tests;
mod workload;

pub use admission::pod_condition;
pub use manifests::{ManifestsError, TranslatedManifests, translate_manifests};
pub use models::{GpuModel, ModelSource, Models, ModelsError};
pub use pod::{Origin, Translation, translate};
pub use report::{Change, Entry, Outcome, Reason, Refusal};
pub use stored::is_as_written;
pub use workload::{TranslatedDocument, translate_document};

/// What the caller decides.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The cluster's GPU models, in the order in which fractions prefer them. Without them, fractions of a GPU's memory are
    /// refused.
    pub models: Models,
    /// Where they come from: refusals say what to do about them.
    pub models_from: ModelSource,
    /// `spec.schedulerName` of translated pods, such as `octavo`. Without it the name of HAMi's or KAI's scheduler is removed,
    /// and Kubernetes' own scheduler places the pod.
    pub scheduler_name: Option<String>,
    /// Whether pods are translated at their admission, and not in manifests. Their labels stay then, since selectors find pods by
    /// them, and what a scheduler had written does not make a pod HAMi's or KAI's.
    pub is_admission: bool,
}
