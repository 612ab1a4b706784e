//! `octavo validate node`: the checks, on the node itself.

mod cuda;
mod driver;
mod plugin;
mod status_files;
mod toolkit;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use octavo_view::ViewError;
use octavo_view::command::{colour, write};
use octavo_view::output::{self, Format};
use tokio::time::{Instant, sleep};

use crate::args::NodeArgs;
use crate::report::{Component, Finding, Findings, State, ValidateStatus, findings_text};
pub(crate) use plugin::{NO_OFFER, NO_OFFER_REMEDY};

use driver::DriverRoot;
use status_files::StatusFolder;

/// Pause before a failed check is repeated.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Time for the driver's answers. The first call of a driver without persistence mode takes seconds for each GPU.
const DRIVER_LIMIT: Duration = Duration::from_mins(2);
/// Longest message of a result in bytes: those of a container are in its termination message, which has 4096.
const MAX_MESSAGE_BYTES: usize = 700;

/// Runs the checks, and writes status files and results.
pub(crate) async fn run(args: &NodeArgs) -> anyhow::Result<ValidateStatus> {
    let root = DriverRoot::new(&args.driver_root, args.driver_root_seen.as_deref());
    let files = StatusFolder::new(args.files.folder());
    let wanted: Vec<Component> = Component::ALL
        .into_iter()
        .filter(|it| args.components.is_empty() || args.components.contains(it))
        .collect();
    // What an earlier run found is not known to be so any more.
    for component in &wanted {
        files.remove(*component)?;
    }
    let until = args.wait.0.map(|limit| Instant::now() + limit);
    let mut findings = Findings { components: Vec::new() };
    for component in wanted {
        if let Some(failed) = findings.first_failed() {
            findings.skip(&[component], failed);
            continue;
        }
        let finding = loop {
            let finding = check(component, args, &root).await;
            let has_time = until.is_some_and(|until| Instant::now() + RETRY_INTERVAL < until);
            if finding.state != State::Failed || !has_time {
                break finding;
            }
            sleep(RETRY_INTERVAL).await;
        };
        let finding = record(finding, &files, &root);
        if component == Component::Driver && finding.state == State::Failed {
            // Nothing else is ready without the driver, whatever an earlier run found.
            for component in Component::ALL {
                files.remove(component)?;
            }
        }
        findings.components.push(finding);
    }
    write_results(args, &findings)?;
    Ok(findings.status())
}

async fn check(component: Component, args: &NodeArgs, root: &DriverRoot) -> Finding {
    let mut finding = match component {
        Component::Driver => driver::check_within(root, DRIVER_LIMIT).await,
        Component::Toolkit => toolkit::check(root),
        Component::Cuda => cuda::check(&own_program()).await,
        Component::Plugin => plugin::check(args).await,
    };
    shorten(&mut finding.message);
    finding
}

/// Writes the status file of a component that is ready. Without it nothing that waits for the component goes on.
fn record(finding: Finding, files: &StatusFolder, root: &DriverRoot) -> Finding {
    if finding.state != State::Ready {
        return finding;
    }
    let component = finding.component;
    let content = if component == Component::Driver { root.variables() } else { String::new() };
    match files.write(component, &content) {
        Ok(()) => finding,
        Err(error) => Finding::failed(
            component,
            format!("{}; {error}", finding.message),
            "let this process write the folder, name another one with --status-dir, or pass --no-status-files",
        ),
    }
}

fn write_results(args: &NodeArgs, findings: &Findings) -> anyhow::Result<()> {
    if let Some(path) = &args.report {
        let text = serde_json::to_vec(findings).context("write the results as JSON")?;
        std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    }
    let text = match args.output {
        Format::Json => output::json("NodeValidation", findings)?,
        Format::Yaml => output::yaml("NodeValidation", findings)?,
        Format::Table | Format::Wide => findings_text(findings, colour()),
    };
    Ok(write(&text).map_err(ViewError::from)?)
}

/// Cuts a text at the limit.
fn shorten(text: &mut String) {
    if text.len() > MAX_MESSAGE_BYTES {
        let end = (0..=MAX_MESSAGE_BYTES).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
        text.push_str(" ...");
    }
}

/// This program, which is run again for what may end or stop a process.
fn own_program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

#[cfg(test)]
mod tests;
