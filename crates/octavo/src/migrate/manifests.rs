//! `octavo migrate manifests`: reads files, translates them, writes them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use octavo_machine::Machine;
use octavo_migration::{
    GpuModel, Models, Options, Outcome, TranslatedManifests, translate_manifests,
};

/// Stands for standard input.
const STDIN: &str = "-";
/// File name of what came from standard input.
const STDIN_OUTPUT: &str = "stdin.yaml";

/// Arguments of `octavo migrate manifests`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ManifestsArgs {
    /// Manifests in YAML or JSON; - is standard input
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// GPU models of the cluster with their memory, in order of preference [default: those of Octavo's machine
    /// descriptions, smallest memory first]
    #[arg(long, value_name = "FILE")]
    models: Option<PathBuf>,
    /// Scheduler of translated pods, such as octavo [default: none, so that Kubernetes' own places them]
    #[arg(long, value_name = "NAME")]
    scheduler_name: Option<String>,
    /// Write each file under its name to this folder [default: all to standard output]
    #[arg(long, short, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Write what is translated although something is refused
    #[arg(long)]
    keep_going: bool,
}

/// A file and its translation.
struct TranslatedFile {
    path: PathBuf,
    manifests: TranslatedManifests,
}

/// Runs `octavo migrate manifests`. Returns whether all is translated.
pub(crate) fn run_manifests(
    args: &ManifestsArgs,
    out: &mut dyn Write,
    log: &mut dyn Write,
) -> anyhow::Result<bool> {
    let models = models(args.models.as_deref())?;
    let scheduler_name = args.scheduler_name.clone();
    let options = Options { models, scheduler_name, ..Options::default() };
    let targets = args.output.as_deref().map(|folder| targets(&args.files, folder)).transpose()?;
    let files = args.files.iter().map(|path| translate_file(path, &options));
    let files = files.collect::<anyhow::Result<Vec<_>>>()?;
    report(&files, log).context("write to standard error")?;
    let has_refusals = files.iter().any(|file| file.manifests.has_refusals());
    if has_refusals && !args.keep_going {
        return Ok(false);
    }
    match targets {
        Some(targets) => write_files(&targets, &files)?,
        None => out.write_all(joined(&files).as_bytes())?,
    }
    Ok(!has_refusals)
}

fn translate_file(path: &Path, options: &Options) -> anyhow::Result<TranslatedFile> {
    let text = if path == Path::new(STDIN) {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text).context("read standard input")?;
        text
    } else {
        fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?
    };
    let manifests = translate_manifests(&text, options)
        .with_context(|| format!("cannot translate {}", shown(path)))?;
    Ok(TranslatedFile { path: path.to_owned(), manifests })
}

/// A line for each change and each refusal.
fn report(files: &[TranslatedFile], log: &mut dyn Write) -> io::Result<()> {
    for TranslatedFile { path, manifests } in files {
        for entry in &manifests.entries {
            let place = format!("{}: {}", shown(path), entry.object);
            match &entry.outcome {
                Outcome::Changed(change) => writeln!(log, "{place}: {change}")?,
                Outcome::Refused(refusal) => {
                    writeln!(log, "{place}: error: {refusal} ({})", refusal.reason)?;
                }
                Outcome::Left(left) => writeln!(log, "{place}: {left}")?,
            }
        }
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    if path == Path::new(STDIN) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Where each file is written. Two files of one name, and a file that would replace itself, are errors.
fn targets(files: &[PathBuf], folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut sources: BTreeMap<PathBuf, &Path> = BTreeMap::new();
    let mut targets = Vec::new();
    for source in files {
        let name = match source.file_name() {
            Some(_) if source == Path::new(STDIN) => STDIN_OUTPUT.as_ref(),
            Some(name) => name,
            None => bail!("{} is no file; name files of manifests", source.display()),
        };
        let target = folder.join(name);
        if let Some(other) = sources.insert(target.clone(), source) {
            bail!(
                "{} and {} would both be written to {}; translate them one by one",
                other.display(),
                source.display(),
                target.display()
            );
        }
        let is_same =
            |target: &Path| Some(target.canonicalize().ok()? == source.canonicalize().ok()?);
        if is_same(&target) == Some(true) {
            bail!(
                "{} would be replaced, and it is the way back; name another folder with --output",
                source.display()
            );
        }
        targets.push(target);
    }
    Ok(targets)
}

fn write_files(targets: &[PathBuf], files: &[TranslatedFile]) -> anyhow::Result<()> {
    for (target, file) in targets.iter().zip(files) {
        if let Some(folder) = target.parent() {
            fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        fs::write(target, &file.manifests.text)
            .with_context(|| format!("write {}", target.display()))?;
    }
    Ok(())
}

/// All files as one stream of documents.
fn joined(files: &[TranslatedFile]) -> String {
    let mut text = String::new();
    for file in files {
        let next = &file.manifests.text;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        if !text.is_empty() && !next.starts_with("---") {
            text.push_str("---\n");
        }
        text.push_str(next);
    }
    text
}

/// The GPU models of a file, or without one those of the machine descriptions that ship.
pub(super) fn models(path: Option<&Path>) -> anyhow::Result<Models> {
    path.map_or_else(shipped_models, read_models)
}

fn read_models(path: &Path) -> anyhow::Result<Models> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Models::parse(&text).with_context(|| format!("cannot use {}", path.display()))
}

/// The GPUs of the machine descriptions that ship, smallest memory first.
pub(super) fn shipped_models() -> anyhow::Result<Models> {
    let mut models = Vec::new();
    for (name, text) in octavo_lab::shipped_machines() {
        let machine = Machine::parse(text).with_context(|| format!("read the machine {name}"))?;
        let (product_name, memory_mib) = (machine.model.name, machine.model.memory_mib);
        models.push(GpuModel { product_name, memory_mib });
    }
    models.sort_by(|one, other| {
        (one.memory_mib, &one.product_name).cmp(&(other.memory_mib, &other.product_name))
    });
    Ok(Models::new(models)?)
}
