//! `octavo migrate plan`: reads a cluster, and says what moving it to Octavo will do.

mod read;

use std::path::PathBuf;

use clap::Args;
use octavo_migration::Options;
use octavo_migration::plan::{plan, plan_text};
use octavo_view::connect::ConnectArgs;
use octavo_view::output::{self, Format};

use super::manifests::models;

/// Arguments of `octavo migrate plan`.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlanArgs {
    /// GPU models of the cluster with their memory, as of `octavo migrate manifests`
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,
    /// Scheduler of translated pods, such as octavo [default: none, so that Kubernetes' own places them]
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// Output format
    #[arg(short, long, value_enum, default_value_t, value_name = "FORM")]
    output: Format,
    /// Which cluster
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Runs `octavo migrate plan`. Returns the text for standard output, and whether nothing stands in the way.
pub(crate) async fn run_plan(args: &PlanArgs) -> anyhow::Result<(String, bool)> {
    let models = models(args.models.as_deref())?;
    let scheduler_name = args.scheduler_name.clone();
    let options = Options { models, scheduler_name, ..Options::default() };
    let connection = args.connect.connect().await?;
    let cluster = Box::pin(connection.within(read::cluster(&connection.client))).await?;
    let plan = plan(&cluster, &options);
    let text = match args.output {
        Format::Json => output::json("MigrationPlan", &plan)?,
        Format::Yaml => output::yaml("MigrationPlan", &plan)?,
        Format::Table | Format::Wide => plan_text(&plan),
    };
    Ok((text, plan.is_clear()))
}
