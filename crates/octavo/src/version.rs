//! Identifies this build.

use octavo::VERSION;
use serde_json::json;

/// The built commit, if the build sets `OCTAVO_COMMIT`.
const COMMIT: Option<&str> = option_env!("OCTAVO_COMMIT");

/// One line for people.
pub(crate) fn line() -> String {
    match COMMIT {
        Some(commit) => format!("octavo {VERSION} ({commit})\n"),
        None => format!("octavo {VERSION}\n"),
    }
}

/// A versioned object for programs.
pub(crate) fn json() -> String {
    let mut object = json!({
        "apiVersion": octavo_view::output::API_VERSION,
        "kind": "Version",
        "version": VERSION,
    });
    if let (Some(commit), Some(fields)) = (COMMIT, object.as_object_mut()) {
        fields.insert("commit".to_owned(), json!(commit));
    }
    format!("{object:#}\n")
}
