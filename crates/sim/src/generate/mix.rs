//! The mix of running workloads of a synthetic cluster.

use std::str::FromStr;

/// Kinds of workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// Several whole nodes, placed all or nothing.
    Gang,
    /// All GPUs of a node.
    Node,
    /// MIG instances.
    Mig,
    /// One GPU.
    One,
    /// A part of a GPU.
    Share,
}

/// Relative parts of the kinds; they need no particular sum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mix([u32; WorkloadKind::ALL.len()]);

/// Why a text is no mix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a mix: {problem}; expected parts by kind, such as gang=35,node=20,mig=5,one=25,share=15"
)]
pub struct MixError {
    text: String,
    problem: &'static str,
}

impl WorkloadKind {
    /// All kinds, the largest first: small ones fit between large ones.
    pub const ALL: [Self; 5] = [Self::Gang, Self::Node, Self::Mig, Self::One, Self::Share];

    /// Name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gang => "gang",
            Self::Node => "node",
            Self::Mig => "mig",
            Self::One => "one",
            Self::Share => "share",
        }
    }

    /// The name prefix of workloads of the kind.
    pub(super) fn role(self) -> &'static str {
        match self {
            Self::Gang => "train",
            Self::Node => "tune",
            Self::Mig => "notebook",
            Self::One => "batch",
            Self::Share => "serve",
        }
    }
}

impl Default for Mix {
    fn default() -> Self {
        Self([35, 20, 5, 25, 15])
    }
}

impl Mix {
    /// The part of a kind.
    pub fn of(&self, kind: WorkloadKind) -> u32 {
        self.0[kind as usize]
    }

    /// Sum of all parts.
    pub fn sum(&self) -> u32 {
        self.0.iter().sum()
    }
}

impl FromStr for Mix {
    type Err = MixError;

    fn from_str(text: &str) -> Result<Self, MixError> {
        let wrong = |problem| MixError { text: text.to_owned(), problem };
        let mut parts = [None; WorkloadKind::ALL.len()];
        for item in text.split(',') {
            let (name, part) = item.split_once('=').ok_or_else(|| wrong("a part lacks its ="))?;
            let kind = WorkloadKind::ALL.into_iter().find(|kind| kind.name() == name.trim());
            let kind = kind.ok_or_else(|| wrong("kinds are gang, node, mig, one and share"))?;
            let part: u32 =
                part.trim().parse().map_err(|_| wrong("a part is not a whole number"))?;
            if part > 1_000_000 {
                return Err(wrong("a part is above 1000000"));
            }
            if parts[kind as usize].replace(part).is_some() {
                return Err(wrong("a kind is listed twice"));
            }
        }
        let mix = Self(parts.map(Option::unwrap_or_default));
        if mix.sum() == 0 { Err(wrong("all parts are 0")) } else { Ok(mix) }
    }
}
