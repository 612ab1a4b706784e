//! Generates docs/reference/cli.md from the definition of the command line.

use std::fmt::Write as _;

use clap::{Arg, ArgAction, Command};

/// The whole reference. It is the same on every machine, independent of environment and terminal
/// width.
pub(crate) fn markdown(mut command: Command) -> String {
    command.build();
    let mut text = String::from(
        "# Command line\n\n<!-- Written by `cargo xtask generate`; do not edit. -->\n",
    );
    section(&command, &mut text);
    text
}

fn section(command: &Command, text: &mut String) {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let _ = writeln!(text, "\n## {name}\n");
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        let _ = writeln!(text, "{}\n", sentence(&about.to_string()));
    }
    let usage = command.clone().render_usage().to_string();
    let _ = writeln!(text, "```text\n{}\n```", usage.trim().trim_start_matches("Usage: "));
    let shown: Vec<&Arg> =
        command.get_arguments().filter(|found| is_shown(command, found)).collect();
    if !shown.is_empty() {
        text.push_str("\n| argument | what it is |\n|---|---|\n");
        for argument in shown {
            let _ = writeln!(text, "| {} | {} |", label(argument), meaning(argument));
        }
    }
    let after = command.get_after_long_help().or_else(|| command.get_after_help());
    if let Some(after) = after {
        let _ = writeln!(text, "\n```text\n{}\n```", after.to_string().trim());
    }
    for found in command.get_subcommands().filter(|found| !found.is_hide_set()) {
        section(found, text);
    }
}

/// Global options are listed only where they are defined.
fn is_shown(command: &Command, argument: &Arg) -> bool {
    let is_root = command.get_bin_name().is_some_and(|name| !name.contains(' '));
    !argument.is_hide_set() && argument.get_id() != "help" && (is_root || !argument.is_global_set())
}

fn label(argument: &Arg) -> String {
    let mut names = Vec::new();
    if let Some(short) = argument.get_short() {
        names.push(format!("-{short}"));
    }
    if let Some(long) = argument.get_long() {
        names.push(format!("--{long}"));
    }
    let takes_value =
        matches!(argument.get_action(), ArgAction::Set | ArgAction::Append) || names.is_empty();
    let mut label = names.join(", ");
    if takes_value {
        let values: Vec<&str> =
            argument.get_value_names().unwrap_or_default().iter().map(|name| &**name).collect();
        if !label.is_empty() {
            label.push(' ');
        }
        label.push_str(&values.join(" "));
    }
    format!("`{}`", label.replace('|', "\\|"))
}

fn meaning(argument: &Arg) -> String {
    let mut text = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    let is_flag = matches!(argument.get_action(), ArgAction::SetTrue | ArgAction::Count);
    if !values.is_empty() && !is_flag {
        let _ = write!(text, "; one of {}", values.join(", "));
    }
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| format!("`{}`", value.to_string_lossy()))
        .collect();
    if !defaults.is_empty() && !is_flag {
        let _ = write!(text, "; default {}", defaults.join(", "));
    }
    if let Some(name) = argument.get_env() {
        let _ = write!(text, "; environment variable `{}`", name.to_string_lossy());
    }
    text.replace('|', "\\|").replace('\n', " ")
}

fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.ends_with('.') { text.to_owned() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests;
