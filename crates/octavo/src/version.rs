//! Identifies this build.

use serde_json::json;

/// The built commit, if the build sets `OCTAVO_COMMIT`.
const COMMIT: Option<&str> = option_env!("OCTAVO_COMMIT");

/// The version as shown by `--version`.
pub(crate) const TEXT: &str = env!("CARGO_PKG_VERSION");

/// One line for people.
pub(crate) fn line() -> String {
    match COMMIT {
        Some(commit) => format!("octavo {TEXT} ({commit})\n"),
        None => format!("octavo {TEXT}\n"),
    }
}

/// A versioned object for programs.
pub(crate) fn json() -> String {
    let mut object = json!({
        "apiVersion": octavo_view::output::API_VERSION,
        "kind": "Version",
        "version": TEXT,
    });
    if let (Some(commit), Some(fields)) = (COMMIT, object.as_object_mut()) {
        fields.insert("commit".to_owned(), json!(commit));
    }
    format!("{object:#}\n")
}
