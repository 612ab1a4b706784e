//! Files of manifests: several documents in YAML, or JSON.
//!
//! A document without a change keeps its text, with its comments. A changed one is rewritten: it keeps the comments before
//! its first line, and its fields are in alphabetical order.

mod documents;

use serde_json::{Value, json};

use crate::Options;
use crate::report::{Entry, Outcome};
use crate::workload::{TranslatedDocument, translate_document};
use documents::{Document, documents};

/// A file after translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslatedManifests {
    /// All documents in order, each template before its first user. What is refused is as it was.
    pub text: String,
    /// A line for each change and each refusal.
    pub entries: Vec<Entry>,
}

impl TranslatedManifests {
    /// Whether something is refused.
    pub fn has_refusals(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.outcome, Outcome::Refused(_)))
    }
}

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("document {document}, which begins in line {line}, is not valid YAML: {problem}")]
pub struct ManifestsError {
    /// Number of the document, from 1.
    pub document: usize,
    /// Number of its first line, from 1.
    pub line: usize,
    /// Error of the reader. Its lines count from the document's first.
    pub problem: String,
}

/// Words without which a document has nothing of HAMi or KAI, so that it need not be read.
pub(crate) const WORDS: [&str; 6] = ["nvidia.com/", "hami", "kai", "runai", "run.ai", "gpu-"];

/// Translates a file of manifests.
pub fn translate_manifests(
    text: &str,
    options: &Options,
) -> Result<TranslatedManifests, ManifestsError> {
    match json_values(text) {
        Some(values) => Ok(translate_json(text, &values, options)),
        None => translate_yaml(text, options),
    }
}

/// The values of a file in JSON; `None` if it is YAML.
fn json_values(text: &str) -> Option<Vec<Value>> {
    let is_json = text.trim_start().starts_with('{');
    let values = is_json.then(|| serde_json::Deserializer::from_str(text).into_iter::<Value>());
    values?.collect::<Result<Vec<_>, _>>().ok()
}

/// One object stays one: with templates it becomes a `List`.
fn translate_json(text: &str, values: &[Value], options: &Options) -> TranslatedManifests {
    let mut documents: Vec<Value> = Vec::new();
    let mut entries = Vec::new();
    for value in values {
        let translated = translate_document(value, options);
        add_new(&mut documents, translated.templates);
        documents.push(translated.document);
        entries.extend(translated.entries);
    }
    if documents == values {
        return TranslatedManifests { text: text.to_owned(), entries };
    }
    let whole = match documents.as_slice() {
        [only] => only.clone(),
        _ => json!({ "apiVersion": "v1", "kind": "List", "items": documents }),
    };
    TranslatedManifests { text: format!("{whole:#}\n"), entries }
}

fn translate_yaml(text: &str, options: &Options) -> Result<TranslatedManifests, ManifestsError> {
    let mut output = String::new();
    let mut entries = Vec::new();
    let mut templates = Vec::new();
    for (index, document) in documents(text).into_iter().enumerate() {
        let translated = read(&document, index, options)?;
        let Some((value, translated)) = translated else {
            push_text(&mut output, document.text);
            continue;
        };
        entries.extend(translated.entries);
        let is_changed = value != translated.document;
        let mut new = Vec::new();
        for template in translated.templates {
            if !templates.contains(&template) {
                templates.push(template.clone());
                new.push(template);
            }
        }
        if !is_changed {
            push_text(&mut output, document.text);
            continue;
        }
        // A file's own first lines, such as a licence, stay first.
        push_text(&mut output, document.head);
        for (position, value) in new.iter().chain([&translated.document]).enumerate() {
            let has_separator = position == 0 && (output.is_empty() || !document.head.is_empty());
            if !has_separator {
                output.push_str("---\n");
            }
            output.push_str(&yaml(value, &document, index)?);
        }
    }
    Ok(TranslatedManifests { text: output, entries })
}

/// The value of a document and its translation; `None` if it has nothing of HAMi or KAI.
fn read(
    document: &Document<'_>,
    index: usize,
    options: &Options,
) -> Result<Option<(Value, TranslatedDocument)>, ManifestsError> {
    if !WORDS.iter().any(|word| document.text.contains(word)) || document.body.trim().is_empty() {
        return Ok(None);
    }
    // As kubectl reads it: octal numbers by a leading 0, as in `defaultMode: 0644`. Files are of the user's own, so without a budget.
    let options_of_reader = serde_saphyr::options! { budget: None, legacy_octal_numbers: true };
    let value: Value =
        serde_saphyr::from_str_with_options(document.body, options_of_reader).map_err(|error| {
            ManifestsError { document: index + 1, line: document.line, problem: error.to_string() }
        })?;
    let translated = translate_document(&value, options);
    Ok(Some((value, translated)))
}

fn yaml(value: &Value, document: &Document<'_>, index: usize) -> Result<String, ManifestsError> {
    let mut text = serde_saphyr::to_string(value).map_err(|error| ManifestsError {
        document: index + 1,
        line: document.line,
        problem: error.to_string(),
    })?;
    if !text.ends_with('\n') {
        text.push('\n');
    }
    Ok(text)
}

/// Adds a document's text behind others.
fn push_text(output: &mut String, text: &str) {
    if !output.is_empty() && !output.ends_with('\n') {
        output.push('\n');
    }
    output.push_str(text);
}

fn add_new(documents: &mut Vec<Value>, templates: Vec<Value>) {
    for template in templates {
        if !documents.contains(&template) {
            documents.push(template);
        }
    }
}
