//! `octavo snapshot`: writes the inputs of a live scheduler's decisions to a file for `octavo sim`.
//!
//! It is part of this crate because it joins two independent crates: the view queries the
//! scheduler, and the simulator makes records.

use std::path::PathBuf;

use clap::Args;
use octavo_sim::document::{self, DocumentFormat};
use octavo_sim::whatif::decision::Decision;
use octavo_view::connect::ConnectArgs;
use octavo_view::scheduler::{SchedulerSelection, Subject};
use octavo_view::snapshot::ObjectName;
use serde::Serialize;
use serde_json::Value;

/// Options of `octavo snapshot`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SnapshotArgs {
    /// Write the last recorded decision on this gang, and not the current cluster. NAME is the
    /// object that declares the gang
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_parser = parse_name, group = "subject")]
    podgroup: Option<SubjectName>,
    /// Write the last recorded decision on this pod, which is in no gang
    #[arg(long, value_name = "[NAMESPACE/]NAME", value_parser = parse_name, group = "subject")]
    pod: Option<SubjectName>,
    /// Namespace of the gang or the pod [default: that of the context]
    #[arg(short, long, value_name = "NAME", requires = "subject")]
    namespace: Option<String>,
    /// Write to this file, in the format of its name [default: standard output, as JSON]
    #[arg(long, short, value_name = "FILE.json|.yaml")]
    output: Option<PathBuf>,
    /// Which scheduler
    #[command(flatten)]
    scheduler: SchedulerSelection,
    /// Which cluster
    #[command(flatten)]
    connect: ConnectArgs,
}

/// A gang or a pod as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SubjectName {
    namespace: Option<String>,
    name: String,
}

/// Runs `octavo snapshot`. Returns the text for standard output, empty if a file was written.
pub(crate) async fn run(args: &SnapshotArgs) -> anyhow::Result<String> {
    // Before a large cluster is read, and not after: does the name say a form?
    args.output.as_deref().map(DocumentFormat::of).transpose()?;
    let connection = args.connect.connect().await?;
    let request = async {
        let scheduler = args.scheduler.find(&connection.client).await?;
        let gang = args.podgroup.as_ref().map(|name| (Subject::Gang, name));
        match gang.or(args.pod.as_ref().map(|name| (Subject::Pod, name))) {
            Some((subject, name)) => {
                let namespace = name.namespace.as_ref().or(args.namespace.as_ref());
                let namespace = namespace.unwrap_or(&connection.namespace).clone();
                let name = ObjectName::new(namespace, &name.name);
                Ok(Response::Decision(Box::new(scheduler.decision(subject, &name).await?)))
            }
            // Passed through unchanged, so that unknown fields are kept.
            None => Ok(Response::Cluster(scheduler.snapshot().await?)),
        }
    };
    match connection.within(request).await? {
        Response::Cluster(cluster) => write_or_text(&cluster, args),
        Response::Decision(decision) => write_or_text(&decision.record()?, args),
    }
}

/// The scheduler's response.
enum Response {
    Cluster(Value),
    Decision(Box<Decision>),
}

/// Writes the file, or returns the text if no file is named.
fn write_or_text(value: &impl Serialize, args: &SnapshotArgs) -> anyhow::Result<String> {
    match &args.output {
        Some(path) => {
            document::write(value, path)?;
            Ok(String::new())
        }
        None => Ok(document::text(value, DocumentFormat::Json)?),
    }
}

fn parse_name(text: &str) -> Result<SubjectName, String> {
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, text),
    };
    if name.is_empty() || name.contains('/') || namespace.as_deref() == Some("") {
        return Err("write NAME or NAMESPACE/NAME".to_owned());
    }
    Ok(SubjectName { namespace, name: name.to_owned() })
}

#[cfg(test)]
mod tests {

    #[test]
    fn a_gang_is_named_with_and_without_its_namespace() {
        let name = |text| super::parse_name(text).map(|name| (name.namespace, name.name));
        assert_eq!(name("train"), Ok((None, "train".to_owned())));
        assert_eq!(name("a/train"), Ok((Some("a".to_owned()), "train".to_owned())));
        for text in ["", "/train", "a/", "a/b/c"] {
            assert!(name(text).is_err(), "{text}");
        }
    }
}
