//! Output formats: tables for people, JSON and YAML as an API.

use clap::ValueEnum;
use serde::Serialize;

use crate::error::ViewError;

/// Version of the JSON and YAML formats. Within a version, fields are added and never changed.
pub const API_VERSION: &str = "cli.octavo.dev/v1alpha1";

/// A form of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables
    #[default]
    Table,
    /// Tables with more columns, a line for each GPU
    Wide,
    /// JSON, versioned
    Json,
    /// YAML, versioned
    Yaml,
}

/// A report with its kind and version.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a, T> {
    api_version: &'static str,
    kind: &'static str,
    #[serde(flatten)]
    report: &'a T,
}

/// Writes a report as JSON.
pub fn json<T: Serialize>(kind: &'static str, report: &T) -> Result<String, ViewError> {
    serde_json::to_string_pretty(&Envelope { api_version: API_VERSION, kind, report })
        .map(|text| text + "\n")
        .map_err(|error| ViewError::Encode { format: "JSON", message: error.to_string() })
}

/// Writes a report as YAML.
pub fn yaml<T: Serialize>(kind: &'static str, report: &T) -> Result<String, ViewError> {
    serde_saphyr::to_string(&Envelope { api_version: API_VERSION, kind, report })
        .map_err(|error| ViewError::Encode { format: "YAML", message: error.to_string() })
}
