//! The values of the chart, read with the comments that explain them.
//!
//! A YAML parser drops comments, so this reads lines. It knows the form that values.yaml keeps:
//! two blanks a level, `# -- ` before what it explains, more `# ` lines to go on.

use anyhow::{Context, bail, ensure};

/// A value that a user may set.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    /// Path, as `image.tag`.
    pub(super) key: String,
    /// Default, as YAML on one line; empty where it takes several.
    pub(super) default: String,
    /// What it is for.
    pub(super) text: String,
}

/// The settings in their order. Every value must be explained: one without a comment is an error.
pub(super) fn parse(values: &str) -> anyhow::Result<Vec<Setting>> {
    let mut settings: Vec<Setting> = Vec::new();
    let mut path: Vec<&str> = Vec::new();
    let mut comment: Option<String> = None;
    // Depth of a setting whose default takes several lines: what lies deeper belongs to it.
    let mut inside: Option<usize> = None;
    for (index, line) in values.lines().enumerate() {
        let number = index + 1;
        let trimmed = line.trim_start();
        let depth = (line.len() - trimmed.len()) / 2;
        if trimmed.is_empty() || inside.is_some_and(|above| depth > above) {
            continue;
        }
        inside = None;
        if let Some(text) = trimmed.strip_prefix("# -- ") {
            comment = Some(text.to_owned());
        } else if let Some(text) = trimmed.strip_prefix("# ") {
            if let Some(comment) = &mut comment {
                comment.push(' ');
                comment.push_str(text);
            }
        } else {
            let (key, default) = trimmed
                .split_once(':')
                .with_context(|| format!("values.yaml:{number}: no key in `{trimmed}`"))?;
            ensure!(depth <= path.len(), "values.yaml:{number}: `{key}` is indented too far");
            path.truncate(depth);
            path.push(key);
            let default = default.trim();
            match comment.take() {
                Some(text) => {
                    inside = Some(depth);
                    settings.push(Setting {
                        key: path.join("."),
                        default: default.to_owned(),
                        text,
                    });
                }
                None if default.is_empty() => {}
                None => bail!(
                    "values.yaml:{number}: `{}` is not explained; put a `# -- ` comment above it",
                    path.join(".")
                ),
            }
        }
    }
    ensure!(!settings.is_empty(), "values.yaml explains no value");
    Ok(settings)
}

#[cfg(test)]
mod tests;
