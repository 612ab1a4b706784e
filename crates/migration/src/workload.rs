//! One document: a pod, a workload with pod templates, or a list of these.

mod kinds;

use serde_json::Value;

use crate::json::{array, text};
use crate::keys;
use crate::metadata::{self, Owner};
use crate::pod::{Origin, Translation, translate};
use crate::report::{Entry, Outcome, Refusal, Report};
use crate::{Options, Reason};
use kinds::Kind;

/// A document after translation.
#[derive(Clone, Debug, PartialEq)]
pub struct TranslatedDocument {
    /// The `ResourceClaimTemplate`s that it needs, each once.
    pub templates: Vec<Value>,
    /// The document. What is refused in it is as it was.
    pub document: Value,
    /// A line for each change and each refusal.
    pub entries: Vec<Entry>,
}

/// Translates a document. A `List` gets the templates as items before their users.
pub fn translate_document(document: &Value, options: &Options) -> TranslatedDocument {
    match list_item_kind(document) {
        Some(item_kind) => list(document, item_kind, options),
        None => single(document, None, options),
    }
}

/// For a list the kind of its items, empty for a `List` of any kinds.
fn list_item_kind(document: &Value) -> Option<&str> {
    let is_list = document.get("items").is_some_and(Value::is_array);
    text(document, "kind").and_then(|kind| kind.strip_suffix("List")).filter(|_| is_list)
}

fn list(document: &Value, item_kind: &str, options: &Options) -> TranslatedDocument {
    let mut translated = TranslatedDocument {
        templates: Vec::new(),
        document: document.clone(),
        entries: Vec::new(),
    };
    let mut items = Vec::new();
    for item in array(document, "items") {
        // Items of a typed list have no kind of their own.
        let context = (!item_kind.is_empty())
            .then(|| (text(document, "apiVersion").unwrap_or_default(), item_kind));
        let one = match list_item_kind(item) {
            Some(inner) => list(item, inner, options),
            None => single(item, context, options),
        };
        let new = one.templates.into_iter().filter(|template| {
            !items.contains(template) && !translated.templates.contains(template)
        });
        let new: Vec<Value> = new.collect();
        if item_kind.is_empty() {
            items.extend(new);
        } else {
            translated.templates.extend(new);
        }
        items.push(one.document);
        translated.entries.extend(one.entries);
    }
    translated.document["items"] = items.into();
    translated
}

/// A document that is no list. `context` has the API version and the kind if the document lacks them.
fn single(
    document: &Value,
    context: Option<(&str, &str)>,
    options: &Options,
) -> TranslatedDocument {
    let (default_version, default_kind) = context.unwrap_or_default();
    let version = text(document, "apiVersion").unwrap_or(default_version);
    let kind = text(document, "kind").unwrap_or(default_kind);
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let entry = |outcome| Entry { object: object_name(document, kind), outcome };
    let unchanged = |outcomes: Vec<Outcome>| TranslatedDocument {
        templates: Vec::new(),
        document: document.clone(),
        entries: outcomes.into_iter().map(entry).collect(),
    };
    let translated = match kinds::kind(group, kind) {
        Kind::Pod => match translate(document, &origin(document), options) {
            Ok(None) => return unchanged(Vec::new()),
            Ok(Some(translation)) => Ok(translation),
            Err(refusals) => Err(refusals),
        },
        Kind::Workload(paths) => workload(document, paths, options),
        Kind::OfScheduler => {
            let left = "left as it is, Octavo does not read it".to_owned();
            return unchanged(vec![Outcome::Left(left)]);
        }
        Kind::Other => match sign(document) {
            Some(sign) => Err(vec![Refusal {
                reason: Reason::UnknownKind,
                field: sign,
                cause: format!(
                    "pods of known workloads are translated, and {kind} of {version} is none"
                ),
                remedy: "change it by hand".to_owned(),
            }]),
            None => return unchanged(Vec::new()),
        },
    };
    match translated {
        Ok(Translation { pod, templates, changes }) => TranslatedDocument {
            templates,
            document: pod,
            entries: changes.into_iter().map(Outcome::Changed).map(entry).collect(),
        },
        Err(refusals) => unchanged(refusals.into_iter().map(Outcome::Refused).collect()),
    }
}

fn origin(document: &Value) -> Origin<'_> {
    let metadata = document.get("metadata").unwrap_or(&Value::Null);
    let name = text(metadata, "name").or_else(|| text(metadata, "generateName"));
    Origin {
        name: name.unwrap_or_default(),
        namespace: text(metadata, "namespace"),
        ..Origin::default()
    }
}

/// A workload is changed as a whole or not at all. `pod` of the result is the workload.
fn workload(
    document: &Value,
    paths: &[&str],
    options: &Options,
) -> Result<Translation, Vec<Refusal>> {
    let mut is_of_kai = metadata::is_of_kai(document);
    let mut changed = document.clone();
    for path in paths {
        visit(&mut changed, path, &mut |holder, is_pod| {
            is_of_kai |= is_pod && metadata::is_of_kai(holder);
        });
    }
    let mut report = Report::default();
    let priority = metadata::translate(&mut changed, Owner::Workload, is_of_kai, &mut report);
    let origin = Origin { priority_class: priority.as_deref(), is_of_kai, ..origin(document) };
    let mut templates: Vec<Value> = Vec::new();
    for path in paths {
        visit(&mut changed, path, &mut |holder, is_pod| {
            if !is_pod {
                // The metadata of a Job in a CronJob or a JobSet.
                metadata::translate(holder, Owner::Workload, false, &mut report);
                return;
            }
            match translate(holder, &origin, options) {
                Ok(None) => {}
                Ok(Some(translation)) => {
                    *holder = translation.pod;
                    report.changes.extend(translation.changes);
                    for template in translation.templates {
                        if !templates.contains(&template) {
                            templates.push(template);
                        }
                    }
                }
                Err(refusals) => report.refusals.extend(refusals),
            }
        });
    }
    if !report.refusals.is_empty() {
        return Err(report.refusals);
    }
    Ok(Translation { pod: changed, templates, changes: report.changes })
}

/// The pods of a document as the API server gets them: itself, or the pod templates of a workload.
pub(crate) fn pods(document: &Value) -> Vec<Value> {
    let version = text(document, "apiVersion").unwrap_or_default();
    let group = version.split_once('/').map_or("", |(group, _)| group);
    match kinds::kind(group, text(document, "kind").unwrap_or_default()) {
        Kind::Pod => vec![document.clone()],
        Kind::Workload(paths) => {
            let (mut document, mut pods) = (document.clone(), Vec::new());
            for path in paths {
                visit(&mut document, path, &mut |holder, is_pod| {
                    pods.extend(is_pod.then(|| holder.clone()));
                });
            }
            pods
        }
        Kind::OfScheduler | Kind::Other => Vec::new(),
    }
}

/// Calls `act` with each object with metadata below the document and, with `true`, each pod template at the end of the path.
/// A `*` in the path stands for every element.
fn visit(value: &mut Value, path: &str, act: &mut dyn FnMut(&mut Value, bool)) {
    let (key, rest) = path.split_once('.').unwrap_or((path, ""));
    let mut go_on = |found: &mut Value| {
        if rest.is_empty() {
            if found.is_object() {
                act(found, true);
            }
            return;
        }
        if found.get("metadata").is_some() {
            act(found, false);
        }
        visit(found, rest, &mut *act);
    };
    match (key, value) {
        ("*", Value::Array(elements)) => elements.iter_mut().for_each(go_on),
        ("*", Value::Object(elements)) => elements.values_mut().for_each(go_on),
        (key, Value::Object(fields)) => {
            if let Some(found) = fields.get_mut(key) {
                go_on(found);
            }
        }
        _ => {}
    }
}

/// A key or a scheduler of HAMi or KAI anywhere in a document.
fn sign(value: &Value) -> Option<String> {
    match value {
        Value::Array(elements) => elements.iter().find_map(sign),
        Value::Object(fields) => fields.iter().find_map(|(key, value)| {
            let resource = key.strip_prefix("limits.").or_else(|| key.strip_prefix("requests."));
            let is_resource = keys::HAMI_RESOURCES.contains(&resource.unwrap_or(key));
            let is_scheduler =
                key == "schedulerName" && value.as_str().is_some_and(keys::is_scheduler);
            if is_resource || is_scheduler || keys::is_sign_of_workload(key) {
                return Some(match value.as_str() {
                    Some(value) => format!("{key}: {value}"),
                    None => key.clone(),
                });
            }
            sign(value)
        }),
        _ => None,
    }
}

/// `Deployment team-a/train`.
fn object_name(document: &Value, kind: &str) -> String {
    let Origin { name, namespace, .. } = origin(document);
    match namespace {
        Some(namespace) => format!("{kind} {namespace}/{name}"),
        None => format!("{kind} {name}"),
    }
}
