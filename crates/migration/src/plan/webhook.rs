//! What the translation webhook would do with the pods of a workload, which then stays as it is written.

use serde::Serialize;
use serde_json::Value;

use super::object::{label, namespace};
use crate::Options;
use crate::pod::{Origin, translate};
use crate::workload::pods;

/// What the webhook would do with the pods of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Webhook {
    /// Nothing in them needs a translation.
    NotNeeded,
    /// It translates them as they come.
    Translates,
    /// It leaves them or their namespace out.
    LeavesOut,
    /// It refuses them.
    Refuses,
}

/// Namespaces that the chart leaves out by default, with the one in which the steps install Octavo.
pub(super) const LEFT_OUT: [&str; 5] = [
    "kube-system",
    super::steps::NAMESPACE,
    "kai-resource-reservation",
    "runai-reservation",
    "kai-scale-adjust",
];
/// Labels of pods that are left out, with their values.
pub(super) const LEFT_OUT_PODS: [(&str, &str); 2] =
    [("octavo.dev/translate", "false"), ("hami.io/webhook", "ignore")];

/// What the webhook would do with the pods of an object. What matters most comes first: a refusal, then pods that are left out.
pub(super) fn webhook(object: &Value, options: &Options) -> Webhook {
    if LEFT_OUT.contains(&namespace(object)) {
        return Webhook::LeavesOut;
    }
    let options = Options { is_admission: true, ..options.clone() };
    let of_pod = |pod: Value| {
        if LEFT_OUT_PODS.iter().any(|(key, value)| label(&pod, key) == Some(value)) {
            return Webhook::LeavesOut;
        }
        match translate(&pod, &Origin::default(), &options) {
            Ok(None) => Webhook::NotNeeded,
            Ok(Some(_)) => Webhook::Translates,
            Err(_) => Webhook::Refuses,
        }
    };
    pods(object).into_iter().map(of_pod).max().unwrap_or(Webhook::NotNeeded)
}

/// The values of the chart with which the webhook places pods as the plan's options say.
pub(super) fn values(options: &Options) -> String {
    let scheduler = options.scheduler_name.iter();
    let scheduler = scheduler.map(|name| format!(" --set 'translation.schedulerName={name}'"));
    format!("--set 'translation.enabled=true'{}", scheduler.collect::<String>())
}
