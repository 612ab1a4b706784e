//! The objects of a rendered chart.

use anyhow::Context as _;
use serde_json::Value;

/// Reads the objects.
///
/// # Errors
///
/// They are no YAML.
pub(crate) fn parse(text: &str) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(text).context("the rendered chart cannot be read")?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// The text at a path; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The name of an object.
pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

/// A label of an object; empty if there is none.
pub(crate) fn label<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["labels"][key].as_str().unwrap_or_default()
}

/// An annotation of an object; empty if there is none.
pub(crate) fn annotation<'a>(object: &'a Value, key: &str) -> &'a str {
    object["metadata"]["annotations"][key].as_str().unwrap_or_default()
}

/// `Kind name`.
pub(crate) fn called(object: &Value) -> String {
    format!("{} {}", text(object, "/kind"), name(object))
}

/// The agent's `DaemonSet`, if the chart has it.
pub(crate) fn agent_set(objects: &[Value]) -> Option<&Value> {
    objects.iter().find(|object| {
        text(object, "/kind") == "DaemonSet"
            && label(object, "app.kubernetes.io/component") == "agent"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_read_without_empty_documents() {
        let text = "---\n# Source: a\nkind: A\nmetadata: {name: a}\n---\n\n---\n\
                    kind: DaemonSet\nmetadata: {name: b, labels: {app.kubernetes.io/component: agent}}\n";
        let objects = parse(text).unwrap();
        let names: Vec<String> = objects.iter().map(called).collect();
        assert_eq!(names, ["A a", "DaemonSet b"]);
        assert_eq!(agent_set(&objects).map(name), Some("b"));
    }
}
