//! Which build this is.

use serde_json::json;

/// Commit that was built, if the build was told (`OCTAVO_COMMIT`).
const COMMIT: Option<&str> = option_env!("OCTAVO_COMMIT");

/// The version, as `--version` shows it.
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
