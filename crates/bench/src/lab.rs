//! Time to a running lab, with 5 and with 500 nodes, as a user starts it.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, ensure};
use octavo_figure::{Figure, Goal};
use octavo_lab::{Component, Lab};
use tokio::process::Command;

use crate::lab_dir::LabDir;
use crate::process;

/// Runs `octavo lab up` and `down` in its own state folder.
pub(crate) async fn run(octavo: &Path) -> anyhow::Result<Vec<Figure>> {
    let mut figures = Vec::new();
    // The build of the control plane is not part of the figure: have it done before.
    round(octavo, "dgx-h100=1").await?;
    for (nodes, count, rounds, goal) in [
        ("dgx-h100=2,dgx-a100-80=1,gb200-tray=2", 5, 5, 10.0),
        ("dgx-h100=250,gb200-tray=250", 500, 3, 60.0),
    ] {
        let mut taken = Vec::new();
        for _ in 0..rounds {
            taken.push(round(octavo, nodes).await?);
        }
        let all = |value: fn(&Round) -> f64| taken.iter().map(value).collect::<Vec<_>>();
        let name = |what: &str| format!("{what}, {count} nodes");
        figures.extend([
            Figure::new(name("lab up"), "s", &all(|r| r.up), Goal::Below(goal))?,
            Figure::new(name("lab down"), "s", &all(|r| r.down), Goal::None)?,
            Figure::new(name("agents, resident"), "MiB", &all(|r| r.agents), Goal::None)?,
            Figure::new(name("kubelets, resident"), "MiB", &all(|r| r.kubelets), Goal::None)?,
        ]);
    }
    Ok(figures)
}

/// One start and end of a lab.
struct Round {
    up: f64,
    down: f64,
    agents: f64,
    kubelets: f64,
}

async fn round(octavo: &Path, nodes: &str) -> anyhow::Result<Round> {
    let lab_dir = LabDir::new()?;
    let state = lab_dir.lab();
    let up = lab(octavo, state, &["up", "--nodes", nodes]).await;
    let measured = up.and_then(|up| {
        let running = Lab::open(state)?.context("the lab is up but left no settings")?;
        let resident = |component| -> anyhow::Result<f64> {
            let process = running.process(component).context("a program of the lab has ended")?;
            Ok(process::memory(process.pid.cast_unsigned())?.resident)
        };
        Ok((up, resident(Component::Agents)?, resident(Component::Kubelets)?))
    });
    let down = lab(octavo, state, &["down"]).await?;
    let (up, agents, kubelets) = measured?;
    Ok(Round { up, down, agents, kubelets })
}

/// Runs `octavo lab` to its end; how long that took, in seconds.
async fn lab(octavo: &Path, state: &Path, args: &[&str]) -> anyhow::Result<f64> {
    let started = Instant::now();
    let output = Command::new(octavo)
        .args(["lab", "--state-dir"])
        .arg(state)
        .args(args)
        .stdin(Stdio::null())
        // Without this, the child would outlive an interrupted run.
        .kill_on_drop(true)
        .output()
        .await
        .with_context(|| format!("run {}", octavo.display()))?;
    ensure!(
        output.status.success(),
        "octavo lab {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(started.elapsed().as_secs_f64())
}
