//! `octavo lab chaos`: faults of GPUs and of Octavo's own programs on the running lab, while invariants are read from the API.
//!
//! ```text
//! seed --> plan: faults --> inject: simulated GPUs, kill -9 of programs, deleted pods --.
//!                                                                                       v
//! API server --> watches --> judge: what was seen, violations <--- injected, deleted ---'
//!                              |
//!                              v
//!               person: reboots, replaced boards, ends of jobs    report
//! ```
//!
//! The pods are those of a Deployment, each with a GPU. A policy lets the agents act at once. Where a remedy is a person's, this program
//! is the person. Faults and targets follow from the seed and the nodes alone; what they meet depends on the time that programs take.

mod inject;
mod judge;
mod person;
mod plan;
mod report;
mod violation;
mod watches;
mod workload;

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use kube::Client;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

pub(crate) use report::Report;

use crate::cluster::Lab;
use crate::cluster::component::Component;
use inject::Injector;
use judge::{Judge, Seen};
use person::Person;
use plan::{Fault, Plan};
use workload::{NAMESPACE, Workload};

/// Interval of looks at what is due, while nothing is reported.
const TICK: Duration = Duration::from_millis(200);
/// Time for all pods to run at the beginning.
const BEGIN_TIMEOUT: Duration = Duration::from_mins(3);

/// What is to be done.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Seed of faults and targets.
    pub(crate) seed: u64,
    /// Number of faults.
    pub(crate) faults: usize,
    /// Mean time between two faults.
    pub(crate) interval: Duration,
    /// Pods with a GPU each. `None`: two for three GPUs.
    pub(crate) pods: Option<usize>,
    /// Time after the last fault in which all GPUs are to be in service or retired, and all pods to run.
    pub(crate) settle: Duration,
}

/// Runs the faults, and says what was seen. `say` receives one line at a time.
///
/// # Errors
///
/// The lab lacks what is needed, or its API server does not answer. A violation is no error: it is in the report.
pub(crate) async fn run(
    lab: &Lab,
    options: &Options,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Report> {
    let programs = own_programs(lab)?;
    let mut injector = Injector::open(lab)?;
    let gpus: usize = injector.nodes().map(|(_, gpus)| gpus).sum();
    let pods = options.pods.unwrap_or(gpus * 2 / 3);
    ensure!(pods <= gpus, "{pods} pods need as many GPUs, and the lab has {gpus}");
    let client = lab.client().await?;
    let workload = Workload::create(&client, pods).await?;
    say(&format!(
        "seed {}: {} faults on {gpus} GPUs under {pods} pods",
        options.seed, options.faults
    ));
    let outcome =
        Box::pin(disturb(lab, &client, options, &programs, &mut injector, &workload, &mut say))
            .await;
    injector.end_all()?;
    for program in &programs {
        lab.start(*program).await?;
    }
    let report = outcome?;
    if report.violations.is_empty() {
        workload.remove().await?;
    } else {
        say(&format!(
            "the objects of the run stay: the namespace and the HealthPolicy {NAMESPACE}"
        ));
    }
    Ok(report)
}

/// The programs of Octavo in a lab, and the API server, whose watches are to be lost.
fn own_programs(lab: &Lab) -> anyhow::Result<Vec<Component>> {
    let settings = lab.settings();
    if settings.nodes.is_empty() {
        bail!("the lab has no simulated nodes: start one with `octavo lab up --controller`");
    }
    if !settings.components.contains(&Component::OctavoController) {
        bail!(
            "the lab has no controller, which permits remedies: start it with `octavo lab up --controller`"
        );
    }
    let wanted = [
        Component::Agents,
        Component::OctavoController,
        Component::OctavoScheduler,
        Component::Kubelets,
        Component::KubeApiserver,
    ];
    Ok(wanted.into_iter().filter(|program| settings.components.contains(program)).collect())
}

async fn disturb(
    lab: &Lab,
    client: &Client,
    options: &Options,
    programs: &[Component],
    injector: &mut Injector,
    workload: &Workload,
    mut say: impl FnMut(&str),
) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let gpus = injector.nodes().map(|(_, gpus)| gpus).sum();
    let (sender, mut seen) = mpsc::channel(1024);
    let _watches = watches::start(client, NAMESPACE, &sender);
    let mut judge = Judge::new(workload.pods(), gpus);
    let mut person = Person::new(lab);
    let take = async |judge: &mut Judge, seen: &mut mpsc::Receiver<Seen>, until: Instant| {
        while let Ok(Some(event)) = timeout_at(until, seen.recv()).await {
            judge.take(begin.elapsed(), event);
        }
    };

    while !judge.is_settled() {
        ensure!(
            begin.elapsed() < BEGIN_TIMEOUT,
            "the pods of {} do not all run after {} s: {}",
            NAMESPACE,
            BEGIN_TIMEOUT.as_secs(),
            judge.unsettled()
        );
        take(&mut judge, &mut seen, Instant::now() + TICK).await;
    }

    let nodes = injector.nodes().map(|(name, gpus)| (name.to_owned(), gpus)).collect();
    let plan = Plan::new(options.seed, nodes, programs.to_vec(), options.interval);
    let mut next_at = Instant::now();
    for (number, (wait, fault)) in plan.take(options.faults).enumerate() {
        next_at += wait;
        while Instant::now() < next_at {
            take(&mut judge, &mut seen, next_at.min(Instant::now() + TICK)).await;
            look(&mut judge, injector, begin)?;
            injector.end_due(lab).await?;
            person.act(client, &mut judge, injector, begin.elapsed()).await?;
        }
        tracing::info!(number, ?fault, "a fault");
        match &fault {
            Fault::Gpu { node, gpu, kind } => {
                judge.injected(begin.elapsed(), injector.device(node, *gpu)?, *kind);
                injector.fail_gpu(node, *gpu, *kind)?;
            }
            Fault::Program { program, pause } => {
                injector.kill(lab, *program, *pause).await?;
                judge.program_killed(begin.elapsed());
            }
            Fault::Pod { number } => person.end_job(client, &mut judge, *number).await?,
        }
        judge.count(fault.name());
        if (number + 1) % 50 == 0 {
            say(&format!("{} faults, {} violations", number + 1, judge.violations().len()));
        }
    }

    say("no more faults: waiting until all GPUs are in service or retired, and all pods run");
    injector.end_all()?;
    let deadline = Instant::now() + options.settle;
    while Instant::now() < deadline {
        let until = Instant::now() + TICK;
        take(&mut judge, &mut seen, until).await;
        sleep_until(until).await;
        look(&mut judge, injector, begin)?;
        injector.end_due(lab).await?;
        person.act(client, &mut judge, injector, begin.elapsed()).await?;
        if injector.is_quiet() && person.is_done() && judge.is_settled() {
            break;
        }
    }
    for program in programs {
        lab.check_alive(*program).context("a program of the lab ended by itself")?;
    }
    person.leave(client).await;
    judge.end(begin.elapsed());
    Ok(Report::new(options, judge, begin.elapsed()))
}

/// Looks at the simulated hardware.
fn look(judge: &mut Judge, injector: &Injector, begin: Instant) -> anyhow::Result<()> {
    for (device, resets, is_well) in injector.look()? {
        judge.looked(begin.elapsed(), &device, resets, is_well);
    }
    Ok(())
}
