//! What the webhook answers to an `AdmissionReview` of `admission.k8s.io/v1`.

#[cfg(test)]
mod tests;

use octavo_api::names::LABEL_TRANSLATED;
use octavo_migration::{Change, Options, Origin, Refusal, translate};
use serde::Deserialize;
use serde_json::{Value, json};

use super::patch::difference;

/// Names of templates begin with it. Pods with the same demand share a template, whatever their names.
const TEMPLATE_BASE: &str = "octavo";

/// What an API server sends.
#[derive(Debug, Deserialize)]
pub(crate) struct Review {
    /// The question.
    pub(crate) request: Request,
}

/// An object that is to be created.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Request {
    /// Name of the question: the answer has it, too.
    pub(crate) uid: String,
    /// Namespace of the object.
    #[serde(default)]
    pub(crate) namespace: String,
    /// Whether nothing may be written.
    #[serde(default)]
    pub(crate) dry_run: bool,
    /// The pod.
    pub(crate) object: Value,
}

/// What becomes of a pod.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// Nothing in it is HAMi's or KAI's.
    Unchanged,
    /// It is translated.
    Translated {
        /// The `ResourceClaimTemplate`s that have to exist before it does.
        templates: Vec<Value>,
        /// A JSON patch of the pod.
        patch: Vec<Value>,
        /// What became of its fields.
        changes: Vec<Change>,
    },
    /// It has something without an equal.
    Refused(Vec<Refusal>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Answer {
    /// The pod may be created as it is.
    Unchanged,
    /// The pod may be created with these changes.
    Changed {
        /// A JSON patch.
        patch: Vec<Value>,
        /// A line for each change.
        warnings: Vec<String>,
    },
    /// The pod may not be created.
    Refused(String),
    /// It cannot be said now, and may be asked again.
    Failed(String),
}

/// A bound of the values in a JSON text, before they are made: each but the first comes after a comma or a bracket. Keys count with
/// their values. What is no JSON has some number, too.
pub(crate) fn values(json: &[u8]) -> usize {
    let (mut count, mut is_in_text, mut is_escaped) = (1, false, false);
    for byte in json {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_in_text => is_escaped = true,
            b'"' => is_in_text = !is_in_text,
            b',' | b'[' | b'{' if !is_in_text => count += 1,
            _ => {}
        }
    }
    count
}

/// Decides about a pod.
pub(crate) fn decide(request: &Request, options: &Options) -> Decision {
    let origin =
        Origin { name: TEMPLATE_BASE, namespace: Some(&request.namespace), ..Origin::default() };
    match translate(&request.object, &origin, options) {
        Ok(None) => Decision::Unchanged,
        Ok(Some(translation)) => {
            let mut pod = translation.pod;
            remove_results(&request.object, &mut pod);
            let mut templates = translation.templates;
            for template in &mut templates {
                template["metadata"]["labels"] = json!({LABEL_TRANSLATED: "true"});
            }
            let patch = difference(&request.object, &pod);
            Decision::Translated { templates, patch, changes: translation.changes }
        }
        Err(refusals) => Decision::Refused(refusals),
    }
}

/// Removes what the API server had derived from a field that the translation changed. It derives it again after the webhook, and
/// refuses a pod with the older result.
fn remove_results(before: &Value, pod: &mut Value) {
    let changed = |key: &str| before["spec"].get(key) != pod["spec"].get(key);
    let (has_other_priority, has_other_runtime) =
        (changed("priorityClassName"), changed("runtimeClassName"));
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if has_other_priority {
        spec.remove("priority");
        spec.remove("preemptionPolicy");
    }
    if has_other_runtime {
        spec.remove("overhead");
    }
}

/// The text of refusals, as `octavo migrate manifests` has it.
pub(crate) fn refusal_text(refusals: &[Refusal]) -> String {
    let line = |refusal: &Refusal| format!("{refusal} ({})", refusal.reason);
    format!("octavo: {}", refusals.iter().map(line).collect::<Vec<_>>().join("\n"))
}

/// The warnings of changes, which `kubectl` prints.
pub(crate) fn warnings(changes: &[Change]) -> Vec<String> {
    changes.iter().map(|change| format!("octavo: {change}")).collect()
}

impl Answer {
    /// The answer as an `AdmissionReview`.
    pub(crate) fn review(&self, uid: &str) -> Value {
        let mut response = json!({"uid": uid, "allowed": true});
        match self {
            Self::Unchanged => {}
            Self::Changed { patch, warnings } => {
                let patch = Value::from(patch.clone()).to_string();
                response["patchType"] = "JSONPatch".into();
                response["patch"] = json!(k8s_openapi::ByteString(patch.into_bytes()));
                response["warnings"] = json!(warnings);
            }
            Self::Refused(message) => {
                response["allowed"] = false.into();
                response["status"] =
                    json!({"code": 403, "reason": "Forbidden", "message": message});
            }
            Self::Failed(message) => {
                response["allowed"] = false.into();
                response["status"] =
                    json!({"code": 503, "reason": "ServiceUnavailable", "message": message});
            }
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }
}
