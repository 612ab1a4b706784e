//! `octavo install` and `octavo upgrade`.

use anyhow::{Context as _, bail};
use kube::Client;
use kube::api::{Patch, PatchParams};
use octavo_view::ViewError;
use octavo_view::command::write;
use serde_json::Value;

use crate::args::{ChartArgs, InstallArgs, ReleaseArgs, UpgradeArgs};
use crate::chart::Chart;
use crate::facts::{self, dynamic, plural};
use crate::helm::{Action, Helm, ReleaseState};
use crate::objects::{called, name, parse, text};
use crate::owner::{Release, adoption};
use crate::preflight::{Obstacle, Preflight, check, too_old};
use crate::progress::{InstallStatus, report};
use crate::rollout;

/// Field manager of the labels and annotations of objects that are taken over.
const MANAGER: &str = "octavo-install";

/// Runs `octavo install`.
///
/// # Errors
///
/// Helm or the API server fails, or the release is there already.
pub async fn run_install(args: &InstallArgs) -> anyhow::Result<InstallStatus> {
    run(Action::Install, &args.chart, &args.release).await
}

/// Runs `octavo upgrade`.
///
/// # Errors
///
/// Helm or the API server fails, or there is no such release.
pub async fn run_upgrade(args: &UpgradeArgs) -> anyhow::Result<InstallStatus> {
    let action = Action::Upgrade { resets_values: args.reset_values };
    run(action, &args.chart, &args.release).await
}

async fn run(
    action: Action,
    chart_args: &ChartArgs,
    args: &ReleaseArgs,
) -> anyhow::Result<InstallStatus> {
    let connection = args.connect.connect().await?;
    let client = &connection.client;
    let (version, number) = connection.within(facts::version(client)).await?;
    if let Some(obstacle) = too_old(&version, number) {
        report_obstacle(&obstacle);
        return Ok(InstallStatus::Waits);
    }
    let helm = Helm::find(args).await?;
    let (release, namespace) = (&args.release, &args.namespace);
    match (helm.state().await?, action) {
        (ReleaseState::Pending, _) => bail!(
            "helm writes the release {release} at the moment, or was interrupted: wait, or run `helm rollback {release} -n \
             {namespace}`; `octavo uninstall` removes it"
        ),
        (ReleaseState::There, Action::Install) => bail!(
            "the release {release} is in namespace {namespace} already: use `octavo upgrade`, or another --release"
        ),
        (ReleaseState::Absent, Action::Upgrade { .. }) => {
            bail!("there is no release {release} in namespace {namespace}: use `octavo install`")
        }
        _ => {}
    }
    let chart = Chart::new(chart_args.chart.as_deref())?;
    let rendered = helm.render(action, &chart, chart_args, &version).await?;
    let objects = parse(&rendered)?;
    let facts = Box::pin(connection.within(facts::read(client, &objects))).await?;
    let ours = Release { namespace: namespace.clone(), name: release.clone() };
    let Preflight { obstacles, taken_over, notes } =
        check(&facts, &objects, &ours, chart_args.allow_live_plugins);
    obstacles.iter().for_each(report_obstacle);
    for note in &notes {
        report(note);
    }
    for (object, from) in &taken_over {
        report(&format!("taken over: {}, of {from}", called(object)));
    }
    if args.dry_run {
        write(&rendered).map_err(ViewError::from)?;
    }
    if !obstacles.is_empty() {
        return Ok(InstallStatus::Waits);
    }
    if args.dry_run {
        return Ok(InstallStatus::Done);
    }
    for (object, _) in &taken_over {
        take_over(client, object, &ours).await?;
    }
    let written = helm.write(action, &chart, chart_args).await;
    if let Err(error) = &written
        && error.to_string().contains("conflict")
    {
        report(
            "remedy: --force-conflicts overwrites what others have changed in the release's objects",
        );
    }
    written?;
    let done = if action == Action::Install { "installed" } else { "upgraded" };
    report(&format!("{done}: release {release} in namespace {namespace}"));
    if chart_args.no_wait {
        return Ok(InstallStatus::Done);
    }
    if !rollout::wait(client, &ours, args.timeout).await? {
        report("not all pods are ready yet; `octavo doctor` says what keeps GPUs from use");
        return Ok(InstallStatus::Waits);
    }
    report("`octavo validate` proves that the nodes can serve GPUs");
    Ok(InstallStatus::Done)
}

fn report_obstacle(Obstacle { problem, remedy }: &Obstacle) {
    report(&format!("in the way: {problem}\n  remedy: {remedy}"));
}

/// Makes an object the release's, so that helm changes and removes it.
async fn take_over(client: &Client, object: &Value, ours: &Release) -> anyhow::Result<()> {
    let kind = text(object, "/kind");
    let api = dynamic(client, text(object, "/apiVersion"), kind, plural(kind));
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    let patched = api.patch_metadata(name(object), &params, &Patch::Merge(adoption(ours))).await;
    patched.map(drop).with_context(|| format!("{} cannot be taken over", called(object)))
}
