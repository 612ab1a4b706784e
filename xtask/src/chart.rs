//! `cargo xtask chart`: the Helm chart's checks, and the files that are made from the chart.
//!
//! All of it is done by a real helm (built from `lab/helm`), because what another program makes of
//! the templates says nothing about what a user gets.

mod cases;
mod helm;
mod readme;
mod render;
mod values;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use self::helm::Helm;

/// Arguments of `cargo xtask chart`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    step: Step,
}

/// One step.
#[derive(Debug, clap::Subcommand)]
enum Step {
    /// Checks everything about the chart; writes nothing.
    Check,
    /// Lints and renders the chart with each values file of charts/octavo/ci.
    Lint,
    /// Writes what the lab applies: the chart rendered into crates/lab/manifests.
    Render,
    /// Writes the table of values into the chart's README.
    Docs,
    /// Prints the path of the helm that is used, and builds it first where need be.
    HelmPath,
}

/// Does what `cargo xtask chart` was asked for.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    match args.step {
        Step::Check => check(),
        Step::Lint => lint(),
        Step::Render => {
            let manifests = render_lab_manifests()?;
            manifests.iter().try_for_each(|(path, text)| write(path, text))
        }
        Step::Docs => {
            let (path, current) = readme_now()?;
            write(&path, &readme::with_table(&current, &values_table()?)?)
        }
        Step::HelmPath => {
            say(&helm()?.display().to_string());
            Ok(())
        }
    }
}

/// The helm of `lab/helm`, built once into the cache folder.
pub(crate) fn helm() -> anyhow::Result<PathBuf> {
    Ok(Helm::get(&root()?.join("lab/helm"))?.program)
}

/// Lints the chart strictly, renders it with every values file under `ci/` and looks at each object.
pub(crate) fn lint() -> anyhow::Result<()> {
    let chart = chart()?;
    let helm = Helm::get(&root()?.join("lab/helm"))?;
    let variants = cases::variants(&chart)?;
    for values in &variants {
        helm.lint(&chart, values)?;
        let objects = render::objects(&helm.template(&chart, values)?)
            .with_context(|| format!("rendered with {}", values.display()))?;
        render::check(&objects).with_context(|| format!("rendered with {}", values.display()))?;
        cases::expectation(values, &objects)?;
    }
    say(&format!("chart: {} renderings: ok", variants.len()));
    let refused = cases::REFUSED;
    for case in &refused {
        case.check(&helm, &chart)?;
    }
    say(&format!("chart: {} wrong values refused by the schema: ok", refused.len()));
    Ok(())
}

/// What `octavo lab` applies, by file: the chart without its agent, preceded by the namespace; and the
/// agent of real nodes.
pub(crate) fn render_lab_manifests() -> anyhow::Result<[(PathBuf, String); 2]> {
    let chart = chart()?;
    let folder = root()?.join("crates/lab/manifests");
    let helm = Helm::get(&root()?.join("lab/helm"))?;
    let rendered = helm.template(&chart, &chart.join("ci/lab-values.yaml"))?;
    let agent = helm.template(&chart, &chart.join("ci/real-node-values.yaml"))?;
    Ok([
        (folder.join("octavo.yaml"), render::lab_manifests(&rendered)),
        (folder.join("agent.yaml"), render::agent_manifests(&agent)),
    ])
}

/// All checks: [`lint`], the version, the comments of values, and that generated files are current.
pub(crate) fn check() -> anyhow::Result<()> {
    lint()?;
    check_version()?;
    let (path, current) = readme_now()?;
    ensure!(
        readme::with_table(&current, &values_table()?)? == current,
        "{} does not list the values as values.yaml has them; run `cargo xtask chart docs`",
        shown(&path)
    );
    for (path, text) in render_lab_manifests()? {
        let found = fs::read_to_string(&path).unwrap_or_default();
        ensure!(
            found == text,
            "{} is not what the chart renders to; run `cargo xtask chart render`",
            shown(&path)
        );
    }
    say("chart: version, values table and the lab's manifests: ok");
    Ok(())
}

/// Chart, image and binary carry one version.
fn check_version() -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let path = chart()?.join("Chart.yaml");
    let text = read(&path)?;
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {version}");
        if !text.lines().any(|found| found == line) {
            bail!("{} must say `{line}`: it is the workspace's version", shown(&path));
        }
    }
    Ok(())
}

fn values_table() -> anyhow::Result<String> {
    Ok(readme::table(&values::parse(&read(&chart()?.join("values.yaml"))?)?))
}

fn readme_now() -> anyhow::Result<(PathBuf, String)> {
    let path = chart()?.join("README.md");
    let text = read(&path)?;
    Ok((path, text))
}

fn root() -> anyhow::Result<&'static Path> {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the xtask package has no parent folder")
}

fn chart() -> anyhow::Result<PathBuf> {
    Ok(root()?.join("charts/octavo"))
}

fn read(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    say(&format!("wrote {}", shown(path)));
    Ok(())
}

/// A path from the repository's root on, as people know it.
fn shown(path: &Path) -> String {
    root().ok().and_then(|root| path.strip_prefix(root).ok()).unwrap_or(path).display().to_string()
}

#[expect(clippy::print_stdout, reason = "a chore talks to the person who started it")]
fn say(line: &str) {
    println!("{line}");
}

/// Says how far a chore is, where it does not mix with what the chore prints.
#[expect(clippy::print_stderr, reason = "a chore talks to the person who started it")]
fn tell(line: &str) {
    eprintln!("{line}");
}
