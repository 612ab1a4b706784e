//! The log of a run, for the validator, the hash and CSV output.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use crate::arrivals::Arrivals;
use crate::trace::Trace;
use crate::validate::{Departure, Event, Placement, Totals, Validator, Violation};

/// The entries of a run, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Log {
    /// The entries.
    pub entries: Vec<Entry>,
    /// Name of each pod, as the entries number them.
    pub pods: Vec<String>,
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A pod came.
    Arrived {
        /// Index in [`Arrivals::pods`] and [`Log::pods`].
        pod: usize,
        /// The placement; `None` if the pod was skipped.
        place: Option<Place>,
    },
    /// A placed pod left.
    Departed {
        /// Index in [`Arrivals::pods`] and [`Log::pods`].
        pod: usize,
    },
}

/// Where a pod went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Name of the node.
    pub node: String,
    /// Index of each GPU in the node, and thousandths of it.
    pub gpus: Vec<(u32, u32)>,
}

impl Log {
    /// An empty log for these arrivals.
    pub(super) fn of(trace: &Trace, arrivals: &Arrivals) -> Self {
        let pods =
            arrivals.pods.iter().map(|arrival| arrival.name(&trace.pods).into_owned()).collect();
        Self { entries: Vec::with_capacity(arrivals.events.len()), pods }
    }

    /// SHA-256 in hexadecimal over a line `pod,node,gpus,milli` for each arrival, as
    /// [`Self::lines`] writes them. Two runs with the same placements have the same hash.
    pub fn hash(&self) -> String {
        let mut hash = Sha256::new();
        let mut line = String::new();
        for (pod, place) in self.arrivals() {
            line.clear();
            write_line(&mut line, pod, place);
            line.push('\n');
            hash.update(line.as_bytes());
        }
        hash.finalize().iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// A line for each arrival: pod, node, GPUs separated by spaces, thousandths of each. The
    /// fields after the pod are empty for a skipped pod.
    pub fn lines(&self) -> impl Iterator<Item = String> + '_ {
        self.arrivals().map(|(pod, place)| {
            let mut line = String::new();
            write_line(&mut line, pod, place);
            line
        })
    }

    fn arrivals(&self) -> impl Iterator<Item = (&str, Option<&Place>)> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Arrived { pod, place } => Some((self.name(*pod), place.as_ref())),
            Entry::Departed { .. } => None,
        })
    }

    fn name(&self, pod: usize) -> &str {
        self.pods.get(pod).map_or("", String::as_str)
    }

    /// Has the log judged by the independent validator.
    pub fn validate(&self, trace: &Trace, arrivals: &Arrivals) -> Result<Totals, Violation> {
        let mut validator = Validator::new(&trace.nodes)?;
        let none = crate::trace::PodRow::default();
        for entry in &self.entries {
            let event = match entry {
                Entry::Arrived { pod, place } => Event::Arrive {
                    name: self.name(*pod),
                    pod: arrivals.pods.get(*pod).map_or(&none, |pod| &trace.pods[pod.row]),
                    gang: None,
                    placement: place
                        .as_ref()
                        .map(|place| Placement { node: &place.node, gpus: place.gpus.clone() }),
                },
                Entry::Departed { pod } => {
                    Event::Depart { name: self.name(*pod), why: Departure::Finished }
                }
            };
            validator.apply(&event)?;
        }
        validator.finish()
    }
}

fn write_line(line: &mut String, pod: &str, place: Option<&Place>) {
    // Writing to a String never fails.
    let _ = write!(line, "{},", quoted(pod));
    let Some(Place { node, gpus }) = place else {
        line.push_str(",,");
        return;
    };
    let _ = write!(line, "{},", quoted(node));
    for (number, (gpu, _)) in gpus.iter().enumerate() {
        let _ = write!(line, "{}{gpu}", if number > 0 { " " } else { "" });
    }
    let _ = write!(line, ",{}", gpus.first().map_or(0, |(_, milli)| *milli));
}

/// A CSV field. Names may contain any printable character.
fn quoted(field: &str) -> std::borrow::Cow<'_, str> {
    if field.contains([',', '"']) {
        format!("\"{}\"", field.replace('"', "\"\"")).into()
    } else {
        field.into()
    }
}
