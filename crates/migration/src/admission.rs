//! Which pods a webhook needs, as a condition that the API server evaluates.

#[cfg(test)]
mod tests;

use crate::keys::{
    HAMI_RESOURCES, exact_signs, exceptions, is_annotation_sign, is_label_sign, schedulers,
    sign_prefixes,
};

/// A CEL expression over `object`, a pod of `v1` as the API server has it: whether [`translate`](crate::translate) with
/// [`is_admission`](crate::Options::is_admission) changes or refuses it. It is the only expression in `matchConditions` of a webhook.
///
/// It has no optional fields and no regular expressions, so its cost is small and grows with the pod's keys.
pub fn pod_condition() -> String {
    let prefixes = sign_prefixes().map(|prefix| format!("k.startsWith('{prefix}')"));
    let prefixes = prefixes.collect::<Vec<_>>().join(" || ");
    let except = |is_sign| format!("({prefixes}) && !(k in {})", list(exceptions(is_sign)));
    let annotation = format!("k in {} || {}", list(exact_signs()), except(is_annotation_sign));
    let label = except(is_label_sign);
    let resources = list(HAMI_RESOURCES);
    let amounts = ["limits", "requests"].map(|list| {
        format!("has(c.resources.{list}) && {resources}.exists(r, r in c.resources.{list})")
    });
    let container = format!("has(c.resources) && ({})", amounts.join(" || "));
    let parts = [
        format!(
            "has(object.metadata.annotations) && object.metadata.annotations.exists(k, {annotation})"
        ),
        format!("has(object.metadata.labels) && object.metadata.labels.exists(k, {label})"),
        format!("object.spec.containers.exists(c, {container})"),
        format!(
            "has(object.spec.initContainers) && object.spec.initContainers.exists(c, {container})"
        ),
        format!(
            "has(object.spec.schedulerName) && object.spec.schedulerName in {}",
            list(schedulers())
        ),
    ];
    parts.map(|part| format!("({part})")).join("\n|| ")
}

/// A list of texts that need no escape.
fn list(texts: impl IntoIterator<Item = &'static str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("'{text}'")).collect();
    format!("[{}]", quoted.join(", "))
}
