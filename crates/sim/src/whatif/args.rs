//! The command lines of `octavo sim whatif` and `octavo sim verify`.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use octavo_engine::explain::Explanation;
use octavo_engine::objective::policy::PlacementPolicy;
use octavo_engine::snapshot::{GangRecord, Snapshot};

use super::inline::{self, InlineError};
use super::quantity::{Cpu, Memory};
use super::record::{Record, RecordError, Verdict};
use super::{Question, WhatifError, answer};
use crate::document::{self, DocumentError, DocumentFormat};

/// The text below the flags in the help.
pub const HELP: &str = "\
Several gangs are placed one after another: each sees the placements of the previous ones.

Exit codes: 0 all fit, 1 failed, 2 wrong usage, 3 at least one does not fit.

Examples:
  octavo sim whatif --cluster cluster.yaml --name train --count 4 --gpus 8 --required rack
  octavo sim whatif --cluster cluster.yaml --gang gang.yaml --policy policy.yaml --format json
  octavo sim whatif --cluster cluster.yaml --waiting all
  octavo sim whatif --cluster cluster.yaml --name big --count 16 --gpus 8 --allow-moves 20
  octavo sim whatif --cluster cluster.yaml --fail b1-r2-n3
  octavo sim whatif --cluster cluster.yaml --gang gang.yaml --record asked.json
  octavo sim verify asked.json";

/// Arguments of `octavo sim whatif`.
#[derive(Args, Clone, Debug, Default)]
pub struct WhatifArgs {
    /// The cluster's document
    #[arg(long, value_name = "FILE")]
    pub cluster: PathBuf,
    /// A gang's document; may be repeated
    #[arg(long = "gang", value_name = "FILE")]
    pub gangs: Vec<PathBuf>,
    /// A gang by flags.
    #[command(flatten)]
    pub inline: GangArgs,
    /// A waiting gang of the cluster's document, or `all` of them in order
    #[arg(long, value_name = "NAME|all")]
    pub waiting: Vec<String>,
    /// A policy's document: objectives and constraints
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Maximum number of running pods to move
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub allow_moves: u32,
    /// Allow evictions of workloads with lower priority
    #[arg(long)]
    pub allow_evictions: bool,
    /// Place single pods by the packing policy, like a live scheduler, with the learned state of the
    /// document. Otherwise they are searched for like gangs
    #[arg(long)]
    pub packing: bool,
    /// Nodes that fail first. Without a gang, the question is where the lost members go
    #[arg(long, value_name = "NODE,...", value_delimiter = ',')]
    pub fail: Vec<String>,
    /// Format of the output
    #[arg(long, short = 'o', value_name = "FORM", value_enum, default_value_t)]
    pub format: AnswerFormat,
    /// Write the answer as a document
    #[arg(long, value_name = "FILE.json|.yaml")]
    pub out_plan: Option<PathBuf>,
    /// Repeat the question N times from the document, print the hash of each answer, and fail if two
    /// hashes differ
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: Option<u32>,
    /// Write cluster, question and answer, for `octavo sim verify`
    #[arg(long, value_name = "FILE.json|.yaml")]
    pub record: Option<PathBuf>,
}

/// A gang of equal pods by flags.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "A gang by flags")]
pub struct GangArgs {
    /// Its name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Members
    #[arg(long, value_name = "N", default_value_t = 1, requires = "name")]
    pub count: u32,
    /// Minimum number of placed members [default: all]
    #[arg(long, value_name = "N", requires = "name")]
    pub min: Option<u32>,
    /// GPUs of each member, or shares, or MIG instances
    #[arg(long, value_name = "N", requires = "name")]
    pub gpus: Option<u16>,
    /// Thousandths of each of these GPUs
    #[arg(long, value_name = "N", requires = "name", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub milli: Option<u16>,
    /// Memory of each of these GPUs, such as 20Gi
    #[arg(long, value_name = "QUANTITY", requires = "name")]
    pub gpu_memory: Option<Memory>,
    /// MIG profile, such as 3g.40gb
    #[arg(long, value_name = "PROFILE", requires = "name")]
    pub mig: Option<String>,
    /// Accepted GPU models [default: any]
    #[arg(long = "model", value_name = "NAME,...", value_delimiter = ',', requires = "name")]
    pub models: Vec<String>,
    /// CPU of each member, such as 4 or 500m
    #[arg(long, value_name = "QUANTITY", requires = "name")]
    pub cpu: Option<Cpu>,
    /// Memory of each member, such as 32Gi
    #[arg(long, value_name = "QUANTITY", requires = "name")]
    pub memory: Option<Memory>,
    /// Require all members in one domain of this level
    #[arg(long, value_name = "LEVEL", requires = "name")]
    pub required: Option<String>,
    /// Prefer all members in one domain of this level
    #[arg(long, value_name = "LEVEL", requires = "name")]
    pub preferred: Option<String>,
    /// Keep each group of SIZE members by rank in one domain of a level, such as 2@clique
    #[arg(long, value_name = "SIZE@LEVEL", requires = "name")]
    pub segment: Option<String>,
    /// Priority
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        allow_hyphen_values = true,
        requires = "name"
    )]
    pub priority: i32,
    /// Tenant
    #[arg(long, value_name = "NAME", default_value = "default", requires = "name")]
    pub tenant: String,
    /// Seconds of work lost by a failure
    #[arg(long, value_name = "N", default_value_t = 0, requires = "name")]
    pub seconds_at_risk: u32,
}

/// Arguments of `octavo sim verify`.
#[derive(Args, Clone, Debug)]
pub struct VerifyArgs {
    /// Output of `octavo sim whatif --record`
    #[arg(value_name = "FILE")]
    pub record: PathBuf,
}

/// Output format of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum AnswerFormat {
    /// Plain English
    #[default]
    Text,
    /// JSON, versioned
    Json,
}

/// Why `octavo sim whatif` or `octavo sim verify` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WhatifCommandError {
    /// A document cannot be read or written.
    #[error(transparent)]
    Document(#[from] DocumentError),
    /// The question has no answer.
    #[error(transparent)]
    Whatif(#[from] WhatifError),
    /// The record cannot be replayed.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Flags make no gang.
    #[error(transparent)]
    Inline(#[from] InlineError),
    /// No such gang waits.
    #[error("no gang named {name:?} waits in the cluster; waiting gangs: {}", listed(.names))]
    NotWaiting {
        /// The name.
        name: String,
        /// Names of the waiting gangs.
        names: Vec<String>,
    },
    /// All waiting gangs are requested, but none waits.
    #[error(
        "no gang waits in the cluster's document, so `--waiting all` selects none; name a gang \
         with --gang or --name"
    )]
    NoWaitingGang,
    /// Two answers to one question: a defect.
    #[error(
        "answer {number} has the hash {now}, the first had {first}; this is a defect, report \
         it with the cluster's document"
    )]
    NotRepeated {
        /// Which answer.
        number: u32,
        /// Its hash.
        now: String,
        /// The first hash.
        first: String,
    },
    /// The record does not hold.
    #[error("the record is not verified: {0}")]
    NotVerified(String),
    /// Standard output cannot be written.
    #[error("the answer could not be written")]
    Output(#[from] std::io::Error),
}

impl WhatifCommandError {
    /// Whether the command line is invalid, independent of the files' content.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Document(error) => error.is_usage(),
            Self::Inline(_) => true,
            Self::Whatif(error) => error.is_usage(),
            Self::Record(_)
            | Self::NotWaiting { .. }
            | Self::NoWaitingGang
            | Self::NotRepeated { .. }
            | Self::NotVerified(_)
            | Self::Output(_) => false,
        }
    }
}

impl WhatifArgs {
    /// Whether the flags contain a question.
    fn is_anything_asked(&self) -> bool {
        let is_gang = !self.gangs.is_empty() || self.inline.name.is_some();
        is_gang || !self.waiting.is_empty() || !self.fail.is_empty()
    }
}

/// Runs `octavo sim whatif`. Returns whether all gangs were placed.
pub fn run(args: &WhatifArgs, out: &mut dyn Write) -> Result<bool, WhatifCommandError> {
    // Checked before a long search: the file names must have a known extension.
    for path in [&args.out_plan, &args.record].into_iter().flatten() {
        DocumentFormat::of(path)?;
    }
    let inline = inline::gang(&args.inline)?;
    if !args.is_anything_asked() {
        return Err(WhatifError::Nothing.into());
    }
    let cluster: Snapshot = document::read(&args.cluster, "cluster")?;
    let question = question(args, inline, &cluster)?;
    let answers = answer(&cluster, &question)?;
    if let Some(times) = args.repeat {
        writeln!(out, "{}", answers.hash)?;
        for number in 2..=times {
            let now = answer(&cluster, &question)?;
            writeln!(out, "{}", now.hash)?;
            if now != answers {
                let first = answers.hash;
                return Err(WhatifCommandError::NotRepeated { number, now: now.hash, first });
            }
        }
    } else {
        let text = match args.format {
            AnswerFormat::Text => answers.lines().join("\n") + "\n",
            AnswerFormat::Json => document::text(&answers, DocumentFormat::Json)?,
        };
        out.write_all(text.as_bytes())?;
    }
    if let Some(path) = &args.out_plan {
        document::write(&answers, path)?;
    }
    let is_yes = answers.is_yes();
    if let Some(path) = &args.record {
        document::write(&Record::of(cluster, question, answers), path)?;
    }
    out.flush()?;
    Ok(is_yes)
}

/// Runs `octavo sim verify`.
pub fn verify(args: &VerifyArgs, out: &mut dyn Write) -> Result<(), WhatifCommandError> {
    let record: Record = document::read(&args.record, "record of a question")?;
    let why = match record.verify()? {
        Verdict::Same => {
            let (yes, all) = (count_yes(&record), record.answer.answers.len());
            writeln!(out, "same answer, bit for bit: {} ({yes} of {all} fit)", record.answer.hash)?;
            return Ok(());
        }
        Verdict::QuestionChanged { was, is } => {
            format!("its cluster or question was changed later ({was}, now {is})")
        }
        Verdict::AnswerChanged => "its answer was changed later".to_owned(),
        Verdict::Differs { was, now } => format!(
            "octavo {} answered {was}, and octavo {} answers {}: {}",
            record.program,
            env!("CARGO_PKG_VERSION"),
            now.hash,
            now.lines().join("; "),
        ),
    };
    Err(WhatifCommandError::NotVerified(why))
}

fn count_yes(record: &Record) -> usize {
    let is_yes = |answer: &&super::Answer| matches!(answer.explanation, Explanation::Placed(_));
    record.answer.answers.iter().filter(is_yes).count()
}

fn question(
    args: &WhatifArgs,
    inline: Option<GangRecord>,
    cluster: &Snapshot,
) -> Result<Question, WhatifCommandError> {
    let mut gangs = Vec::new();
    for path in &args.gangs {
        gangs.push(document::read::<GangRecord>(path, "gang")?);
    }
    gangs.extend(inline);
    for name in &args.waiting {
        if name == "all" {
            gangs.extend(cluster.waiting.iter().cloned());
            continue;
        }
        let found = cluster.waiting.iter().find(|gang| gang.profile.name == *name);
        gangs.push(found.cloned().ok_or_else(|| WhatifCommandError::NotWaiting {
            name: name.clone(),
            names: cluster.waiting.iter().map(|gang| gang.profile.name.clone()).collect(),
        })?);
    }
    if gangs.is_empty() && !args.waiting.is_empty() {
        return Err(WhatifCommandError::NoWaitingGang);
    }
    let policy = match &args.policy {
        Some(path) => document::read::<PlacementPolicy>(path, "policy")?,
        None => PlacementPolicy::default(),
    };
    Ok(Question {
        gangs,
        policy,
        fail: args.fail.clone(),
        moves: args.allow_moves,
        evictions: args.allow_evictions,
        packing: args.packing,
        ..Question::default()
    })
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
