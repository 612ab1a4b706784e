//! `cargo xtask compare`: the figures of a benchmark before and after a change.
//!
//! Both checkouts are built, then measured in turn: one pair is a run of each, and the order alternates from pair to
//! pair. A machine that becomes slower for a while therefore affects both sides. A figure's change is the median of
//! its changes within the pairs. The interval is that of the sign test, which assumes no distribution.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde::Deserialize;

use super::PROGRAM;

/// The measured binary, in a checkout.
const OCTAVO: &str = "target/release/octavo";

/// What is compared.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The checkout before the change, for example a `git worktree`.
    #[arg(long, value_name = "FOLDER")]
    before: PathBuf,
    /// The checkout after the change [default: this one]
    #[arg(long, value_name = "FOLDER")]
    after: Option<PathBuf>,
    /// The benchmark's name before the change, if it was another.
    #[arg(long, value_name = "NAME", conflicts_with = "one_benchmark")]
    before_name: Option<String>,
    /// Measure both with the benchmark of the checkout after the change. For benchmarks that have changed, too: what is
    /// compared is `octavo` alone.
    #[arg(long)]
    one_benchmark: bool,
    /// Pairs of runs. From six pairs on, the changes have an interval.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Name of the benchmark.
    name: String,
    /// Its flags.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    flags: Vec<String>,
}

/// The part of a benchmark's report that is compared.
#[derive(Debug, Deserialize)]
struct Report {
    commit: String,
    figures: Vec<Figure>,
}

#[derive(Debug, Deserialize)]
struct Figure {
    what: String,
    unit: String,
    /// Absent from lines that only tell why there is no figure.
    median: Option<f64>,
}

/// Which checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Before,
    After,
}

/// One checkout with its reports.
struct Checkout<'a> {
    folder: &'a Path,
    /// The checkout whose benchmark measures it.
    bench_folder: &'a Path,
    name: &'a str,
    flags: &'a [String],
    /// One for each pair; `None` if the run failed.
    reports: Vec<Option<Report>>,
}

/// Builds both checkouts, runs the pairs and prints a Markdown table.
pub(crate) fn run(root: &Path, args: &Args) -> anyhow::Result<()> {
    let after = args.after.as_deref().unwrap_or(root);
    let before_name = args.before_name.as_deref().unwrap_or(&args.name);
    let checkout = |folder, bench_folder, name| Checkout {
        folder,
        bench_folder,
        name,
        flags: &args.flags,
        reports: Vec::new(),
    };
    let before_bench = if args.one_benchmark { after } else { &args.before };
    let mut before = checkout(&args.before, before_bench, before_name);
    let mut after = checkout(after, after, &args.name);
    for side in [&before, &after] {
        side.build()?;
    }
    for pair in 0..args.pairs {
        for side in order(pair) {
            let side = match side {
                Side::Before => &mut before,
                Side::After => &mut after,
            };
            progress(&format!("pair {} of {}: {}", pair + 1, args.pairs, side.folder.display()));
            side.measure();
        }
    }
    show(&table(&before.reports, &after.reports)?);
    Ok(())
}

/// The order of a pair.
fn order(pair: u32) -> [Side; 2] {
    if pair.is_multiple_of(2) { [Side::Before, Side::After] } else { [Side::After, Side::Before] }
}

impl Checkout<'_> {
    /// Builds what this version of the benchmarks needs, which only it knows.
    fn build(&self) -> anyhow::Result<()> {
        let status = Command::new(env!("CARGO"))
            .args(["xtask", "bench", "help"])
            .current_dir(self.folder)
            .env_remove("CARGO_TARGET_DIR")
            .stdout(Stdio::null())
            .status()
            .context("run cargo")?;
        ensure!(status.success(), "the build in {} ended with {status}", self.folder.display());
        Ok(())
    }

    /// Runs the benchmark once. A run without a report is printed and left out. The runs before it
    /// stay.
    fn measure(&mut self) {
        let report = self.run();
        if let Err(error) = &report {
            progress(&format!("no report: {error:#}"));
        }
        self.reports.push(report.ok());
    }

    fn run(&self) -> anyhow::Result<Report> {
        let find = |folder: &Path, program: &str| {
            let program = folder.join(program);
            program.canonicalize().with_context(|| format!("find {}", program.display()))
        };
        let program = find(self.bench_folder, PROGRAM)?;
        // A missed goal is a failure of the run, but its report is complete.
        let output = Command::new(&program)
            .arg(self.name)
            .args(["--format", "json", "--octavo"])
            .arg(find(self.folder, OCTAVO)?)
            .args(self.flags)
            .current_dir(self.bench_folder)
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| format!("run {}", program.display()))?;
        let mut report: Report = serde_json::from_slice(&output.stdout).with_context(|| {
            format!("{} printed no report and ended with {}", program.display(), output.status)
        })?;
        report.commit = self.commit()?;
        Ok(report)
    }

    /// The commit of what is measured. A report names that of the benchmark.
    fn commit(&self) -> anyhow::Result<String> {
        let mut git = Command::new("git");
        git.args(["describe", "--always", "--dirty", "--exclude=*"]).current_dir(self.folder);
        let output = git.output().context("run git")?;
        ensure!(output.status.success(), "git knows no commit of {}", self.folder.display());
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// The changes of all figures that both sides have, and the names of the others.
fn table(before: &[Option<Report>], after: &[Option<Report>]) -> anyhow::Result<String> {
    let last = |reports: &[Option<Report>]| {
        let report = reports.iter().flatten().next_back();
        report.map(|report| report.commit.clone()).context("a side has no report")
    };
    let mut lines = format!(
        "Before: {}. After: {}.\n\n\
         | figure | unit | pairs | before | after | change, % | 95% interval, % |\n\
         |---|---|---|---|---|---|---|\n",
        last(before)?,
        last(after)?
    );
    let (before, after) = (medians(before), medians(after));
    let mut is_any_shared = false;
    for (key, new) in &after {
        let Some(old) = before.get(key) else { continue };
        let pairs: Vec<(f64, f64)> =
            old.iter().filter_map(|(run, old)| Some((*old, *new.get(run)?))).collect();
        if pairs.is_empty() {
            continue;
        }
        is_any_shared = true;
        let sorted = |value: fn(&(f64, f64)) -> f64| {
            let mut values: Vec<f64> = pairs.iter().map(value).collect();
            values.sort_by(f64::total_cmp);
            values
        };
        let changes = sorted(|(old, new)| change(*old, *new));
        let interval = sign_test_interval(&changes)
            .map_or("needs six pairs".to_owned(), |(low, high)| format!("{low:+.1} to {high:+.1}"));
        // Writing to a string does not fail.
        let _ = writeln!(
            lines,
            "| {} | {} | {} | {:.4} | {:.4} | {:+.1} | {interval} |",
            key.0,
            key.1,
            pairs.len(),
            median(&sorted(|(old, _)| *old)),
            median(&sorted(|(_, new)| *new)),
            median(&changes),
        );
    }
    ensure!(is_any_shared, "the two sides have no figure in common");
    for (side, own, other) in [("before", &before, &after), ("after", &after, &before)] {
        for key in own.keys().filter(|key| !other.contains_key(*key)) {
            let _ = write!(lines, "\nOnly {side}: {} ({}).", key.0, key.1);
        }
    }
    Ok(lines)
}

/// The median of each figure in each run that has it. Runs are numbered by pair.
fn medians(reports: &[Option<Report>]) -> BTreeMap<(&str, &str), BTreeMap<usize, f64>> {
    let mut all = BTreeMap::<_, BTreeMap<usize, f64>>::new();
    for (run, report) in reports.iter().enumerate() {
        for figure in report.iter().flat_map(|report| &report.figures) {
            if let Some(median) = figure.median {
                let key = (figure.what.as_str(), figure.unit.as_str());
                all.entry(key).or_default().insert(run, median);
            }
        }
    }
    all
}

/// The change in percent. Zero to zero is no change.
fn change(before: f64, after: f64) -> f64 {
    if before.total_cmp(&after).is_eq() { 0.0 } else { (after / before - 1.0) * 100.0 }
}

/// The median of sorted values; NaN of none.
fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    if sorted.len().is_multiple_of(2) && middle > 0 {
        f64::midpoint(at(middle - 1), at(middle))
    } else {
        at(middle)
    }
}

/// The interval that contains the median with a confidence of at least 95%, from sorted values. There is none for
/// fewer than six values.
fn sign_test_interval(sorted: &[f64]) -> Option<(f64, f64)> {
    // The probability that at most `left_out` of n fair coins show heads, doubled for both tails.
    let n = i32::try_from(sorted.len()).ok()?;
    let mut term = 0.5_f64.powi(n);
    let mut tail = term;
    let mut left_out = 0_i32;
    if 2.0 * tail > 0.05 {
        return None;
    }
    loop {
        let next = term * f64::from(n - left_out) / f64::from(left_out + 1);
        if 2.0 * (tail + next) > 0.05 {
            break;
        }
        (term, tail, left_out) = (next, tail + next, left_out + 1);
    }
    let low = usize::try_from(left_out).ok()?;
    let high = sorted.len().checked_sub(low + 1)?;
    Some((*sorted.get(low)?, *sorted.get(high)?))
}

#[expect(clippy::print_stderr, reason = "progress; the table is standard output")]
fn progress(text: &str) {
    eprintln!("{text}");
}

#[expect(clippy::print_stdout, reason = "the result")]
fn show(table: &str) {
    println!("{table}");
}

#[cfg(test)]
mod tests;
