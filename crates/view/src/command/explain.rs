//! The command `octavo explain`.

use clap::Args;
use jiff::Timestamp;

use super::{ExplainStatus, OutputArgs, colour, write};
use crate::compute_domain::{self, DomainTextOptions};
use crate::connect::{ConnectArgs, Connection};
use crate::error::ViewError;
use crate::explain::{self, PodExplanation, TextOptions, WaitReason, explain_pod};
use crate::fetch;
use crate::health;
use crate::output::{self, Format};
use crate::scheduler::{
    self, DEFAULT_SCHEDULER, GangExplanation, GangTextOptions, LeaseName, SchedulerSelection,
    Subject,
};
use crate::snapshot::{Gap, GapKind, ObjectName};

/// Options of `octavo explain`.
#[derive(Args, Clone, Debug)]
pub struct ExplainArgs {
    /// What to explain: `pod NAME`, `pod/NAME`, `podgroup NAME` for a gang, by the object that
    /// announces it, `computedomain NAME`, or `device NODE/GPU`
    #[arg(value_name = "KIND NAME", num_args = 1..=2, required = true)]
    pub target: Vec<String>,
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Which scheduler
    #[command(flatten)]
    pub scheduler: SchedulerSelection,
    /// The Lease of the controller of ComputeDomains, in the namespace of their daemons [default:
    /// octavo-system/octavo-controller, else that of the chart's pods]
    #[arg(long, value_name = "NAMESPACE/NAME")]
    pub controller_lease: Option<LeaseName>,
    /// How it is written
    #[command(flatten)]
    pub form: OutputArgs,
    /// Which cluster
    #[command(flatten)]
    pub connect: ConnectArgs,
}

/// What is explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// What a scheduler places.
    Placed(Subject),
    /// A `ComputeDomain`.
    Domain,
    /// A GPU of a node.
    Device,
}

/// Runs `octavo explain`.
pub async fn run_explain(args: &ExplainArgs) -> Result<ExplainStatus, ViewError> {
    let (target, name) = parse_target(&args.target)?;
    let connection = args.connect.connect().await?;
    let namespace = args.namespace.clone().unwrap_or_else(|| connection.namespace.clone());
    let name = ObjectName::new(namespace, name);
    let (text, waits) = match target {
        Target::Placed(Subject::Pod) => pod(args, &connection, &name).await?,
        Target::Placed(Subject::Gang) => gang(args, &connection, &name).await?,
        Target::Domain => domain(args, &connection, &name).await?,
        Target::Device => {
            let gpu = health::name(&[name.name])?;
            (super::health::describe(&connection, &gpu, args.form.output).await?, false)
        }
    };
    write(&text)?;
    Ok(if waits { ExplainStatus::Waiting } else { ExplainStatus::Settled })
}

async fn pod(
    args: &ExplainArgs,
    connection: &Connection,
    name: &ObjectName,
) -> Result<(String, bool), ViewError> {
    let (snapshot, events) =
        Box::pin(connection.within(fetch::for_pod(&connection.client, name))).await?;
    let Some(mut explanation) = explain_pod(&snapshot, name, events) else {
        return Err(ViewError::NoPod { pod: name.clone(), elsewhere: Vec::new() });
    };
    if args.scheduler.is_explicit() || explanation.scheduler != DEFAULT_SCHEDULER {
        let asked = ask(args, connection, Subject::Pod, name).await;
        add_scheduler_answer(
            &mut explanation,
            asked.map(|(_, answer)| answer),
            args.scheduler.is_explicit(),
        )?;
    }
    let text = match args.form.output {
        Format::Json => output::json("PodExplanation", &explanation)?,
        Format::Yaml => output::yaml("PodExplanation", &explanation)?,
        form => explain::render(
            &explanation,
            TextOptions {
                wide: form == Format::Wide,
                headers: !args.form.no_headers,
                colour: colour(),
                now: Timestamp::now(),
            },
        ),
    };
    Ok((text, explanation.waits))
}

async fn gang(
    args: &ExplainArgs,
    connection: &Connection,
    name: &ObjectName,
) -> Result<(String, bool), ViewError> {
    let (scheduler, answer) = ask(args, connection, Subject::Gang, name).await?;
    let explanation = GangExplanation {
        namespace: name.namespace.clone(),
        name: name.name.clone(),
        waits: answer.waiting.is_some(),
        scheduler,
        scheduler_says: answer,
    };
    let text = match args.form.output {
        Format::Json => output::json("PodGroupExplanation", &explanation)?,
        Format::Yaml => output::yaml("PodGroupExplanation", &explanation)?,
        _ => scheduler::render(&explanation, GangTextOptions { colour: colour() }),
    };
    Ok((text, explanation.waits))
}

async fn domain(
    args: &ExplainArgs,
    connection: &Connection,
    name: &ObjectName,
) -> Result<(String, bool), ViewError> {
    let now = Timestamp::now();
    let lease = args.controller_lease.as_ref();
    let facts = compute_domain::read(&connection.client, name, lease, now);
    let facts = Box::pin(connection.within(facts)).await?;
    let explanation = compute_domain::explain(&facts);
    let text = match args.form.output {
        Format::Json => output::json("ComputeDomainExplanation", &explanation)?,
        Format::Yaml => output::yaml("ComputeDomainExplanation", &explanation)?,
        form => {
            let (wide, headers) = (form == Format::Wide, !args.form.no_headers);
            let options = DomainTextOptions { wide, headers, colour: colour(), now };
            compute_domain::render(&explanation, options)
        }
    };
    Ok((text, explanation.waits))
}

/// Asks the scheduler. Returns its name and its explanation.
async fn ask(
    args: &ExplainArgs,
    connection: &Connection,
    subject: Subject,
    name: &ObjectName,
) -> Result<(String, scheduler::SchedulerExplanation), ViewError> {
    let asked = async {
        let scheduler = args.scheduler.find(&connection.client).await?;
        let answer = scheduler.explain(subject, name).await?;
        Ok((scheduler.name().to_owned(), answer))
    };
    connection.within(asked).await
}

/// Adds the scheduler's explanation to that of a pod. If the user did not name the scheduler, an
/// unreachable scheduler is only recorded as a gap: the API server's part is useful alone.
fn add_scheduler_answer(
    explanation: &mut PodExplanation,
    asked: Result<scheduler::SchedulerExplanation, ViewError>,
    is_named: bool,
) -> Result<(), ViewError> {
    match asked {
        Ok(answer) => {
            if answer != scheduler::SchedulerExplanation::default() {
                // The API server may not have it yet; the scheduler itself has.
                explanation
                    .advice
                    .retain(|advice| !matches!(advice.reason, WaitReason::NotYetConsidered { .. }));
            }
            explanation.scheduler_says = Some(answer);
        }
        Err(error) if is_named => return Err(error),
        // The pod belongs to another scheduler, which needs no scheduler of Octavo.
        Err(ViewError::NoScheduler { .. })
            if explanation.scheduler != octavo_api::names::OWNER_OCTAVO => {}
        Err(error) => {
            let hint = error.hint().map_or_else(String::new, |hint| format!("; {hint}"));
            let message = format!("{error}{hint}");
            explanation.gaps.push(Gap { kind: GapKind::Scheduler, message });
        }
    }
    Ok(())
}

/// Parses `pod NAME`, `podgroup NAME`, `computedomain NAME`, `device NODE/GPU` or `KIND/NAME`. The kind may be one of kubectl's short names.
fn parse_target(words: &[String]) -> Result<(Target, &str), ViewError> {
    let (kind, name) = match words {
        [kind, name] => (&**kind, &**name),
        [word] => word.split_once('/').unwrap_or((word, "")),
        _ => ("", ""),
    };
    let target = match kind {
        "pod" | "pods" | "po" => Target::Placed(Subject::Pod),
        "podgroup" | "podgroups" | "pg" => Target::Placed(Subject::Gang),
        "computedomain" | "computedomains" => Target::Domain,
        "device" | "devices" => return Ok((Target::Device, name)),
        _ => return Err(ViewError::Kind { kind: kind.to_owned() }),
    };
    if name.is_empty() || name.contains('/') {
        return Err(ViewError::NoName { kind: kind.to_owned() });
    }
    Ok((target, name))
}

#[cfg(test)]
mod tests;
