//! On which nodes the pods of a `DaemonSet` run: its `nodeSelector` and required node affinity (Kubernetes, "Assigning Pods to
//! Nodes"). Taints are not looked at: a pod of the agent tolerates those of GPU nodes.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::objects::text;

/// A node, as far as a selector sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its name.
    pub(crate) name: String,
    /// Its labels.
    pub(crate) labels: BTreeMap<String, String>,
}

/// Whether a pod with this `spec` may run on a node.
pub(crate) fn admits(spec: &Value, node: &Node) -> bool {
    let selector = spec["nodeSelector"].as_object().into_iter().flatten();
    let is_selected = |(key, value): (&String, &Value)| {
        node.labels.get(key).map(String::as_str) == value.as_str()
    };
    let affinity =
        "/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms";
    let terms = spec.pointer(affinity).and_then(Value::as_array);
    selector.into_iter().all(is_selected)
        && terms.is_none_or(|terms| terms.iter().any(|term| is_met(term, node)))
}

/// An empty term matches no node.
fn is_met(term: &Value, node: &Node) -> bool {
    let of = |list: &str| term[list].as_array().map(Vec::as_slice).unwrap_or_default().iter();
    let by_label = of("matchExpressions")
        .all(|wish| holds(wish, node.labels.get(text(wish, "/key")).map(String::as_str)));
    let by_field = of("matchFields").all(|wish| holds(wish, Some(&node.name)));
    of("matchExpressions").len() + of("matchFields").len() > 0 && by_label && by_field
}

fn holds(wish: &Value, found: Option<&str>) -> bool {
    let values = || wish["values"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<i64>().ok());
    let compare = |is_more: bool| match (number(found), number(values().next())) {
        (Some(found), Some(limit)) => {
            if is_more {
                found > limit
            } else {
                found < limit
            }
        }
        _ => false,
    };
    match text(wish, "/operator") {
        "In" => values().any(|value| Some(value) == found),
        "NotIn" => values().all(|value| Some(value) != found),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => compare(true),
        "Lt" => compare(false),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(labels: &[(&str, &str)]) -> Node {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Node { name: "n".to_owned(), labels: labels.collect() }
    }

    fn with_terms(terms: &Value) -> Value {
        json!({"affinity": {"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}})
    }

    #[test]
    fn selectors_and_terms_are_as_kubernetes_has_them() {
        let gpu = node(&[("gpu", "true"), ("count", "8")]);
        assert!(admits(&json!({}), &gpu));
        assert!(admits(&json!({"nodeSelector": {"gpu": "true"}}), &gpu));
        assert!(!admits(&json!({"nodeSelector": {"gpu": "false"}}), &gpu));
        let expression = |key: &str, operator: &str, values: &[&str]| {
            with_terms(
                &json!([{"matchExpressions": [{"key": key, "operator": operator, "values": values}]}]),
            )
        };
        for (spec, is_met) in [
            (expression("gpu", "In", &["true"]), true),
            (expression("gpu", "NotIn", &["true"]), false),
            (expression("other", "NotIn", &["true"]), true),
            (expression("gpu", "Exists", &[]), true),
            (expression("other", "DoesNotExist", &[]), true),
            (expression("count", "Gt", &["4"]), true),
            (expression("count", "Lt", &["4"]), false),
            (expression("gpu", "Gt", &["4"]), false),
            (with_terms(&json!([{}])), false),
            (
                with_terms(
                    &json!([{}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]),
                ),
                true,
            ),
        ] {
            assert_eq!(admits(&spec, &gpu), is_met, "{spec}");
        }
    }
}
