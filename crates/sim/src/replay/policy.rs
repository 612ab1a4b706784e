//! Policies by name.

use std::sync::Arc;

use octavo_engine::fragmentation::TypicalPods;
use octavo_engine::packing::price::{self, PricePolicy};
use octavo_engine::{Packing, Shape};
use serde::Serialize;

use super::ReplayError;
use crate::classic;

/// A policy that can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Policy {
    /// Octavo's own
    Octavo,
    /// Fragmentation gradient descent (Weng et al., USENIX ATC 2023)
    Fgd,
    /// The node with the least remaining capacity
    #[value(alias = "bestfit")]
    BestFit,
    /// The tightest used GPU, then an idle GPU of a used node, then a free node
    Packing,
    /// A node with pods of the same kind
    Clustering,
    /// The smallest dot product of free and requested resources
    #[value(alias = "dotprod", alias = "dot-prod")]
    DotProduct,
    /// A random node that fits, by the seed
    Random,
}

/// What a policy knows about future pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Popularity {
    /// Nothing: it learns from past pods
    #[default]
    Learned,
    /// The frequency of each kind in the pod list, like FGD
    Known,
}

impl Popularity {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Learned => "learned",
            Self::Known => "known",
        }
    }
}

/// Inputs for building a policy.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Shape of each pod of the list.
    pub shapes: &'a [Arc<Shape>],
    /// The typical ones of them.
    pub typical: &'a Arc<TypicalPods>,
    /// For policies that draw.
    pub seed: i64,
    /// For policies that can learn.
    pub popularity: Popularity,
}

impl Policy {
    /// Its name on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Octavo => "octavo",
            Self::Fgd => "fgd",
            Self::BestFit => "best-fit",
            Self::Packing => "packing",
            Self::Clustering => "clustering",
            Self::DotProduct => "dot-product",
            Self::Random => "random",
        }
    }

    /// Its name in the table of published figures, if the table has it.
    pub fn published_name(self) -> Option<&'static str> {
        match self {
            Self::Octavo => None,
            Self::BestFit => Some("bestfit"),
            Self::DotProduct => Some("dotprod"),
            Self::Fgd | Self::Packing | Self::Clustering | Self::Random => Some(self.name()),
        }
    }

    /// What the policy knows about future pods, if it uses that. `chosen` applies to policies that
    /// can learn.
    pub fn popularity(self, chosen: Popularity) -> Option<Popularity> {
        match self {
            Self::Octavo => Some(chosen),
            Self::Fgd => Some(Popularity::Known),
            _ => None,
        }
    }

    /// Builds the policy for one cluster. Ties go to the lower node id.
    pub fn build(self, setup: &Setup<'_>) -> Result<Box<dyn Packing>, ReplayError> {
        let policy: Option<Box<dyn Packing>> = match (self, setup.popularity) {
            (Self::Octavo, Popularity::Learned) => Some(Box::new(PricePolicy::learned())),
            (Self::Octavo, Popularity::Known) => {
                let counts = setup.shapes.iter().map(|shape| (Arc::clone(shape), 1));
                Some(Box::new(PricePolicy::known(price::DemandStats::of(counts))))
            }
            _ => {
                let (typical, ties) = (Arc::clone(setup.typical), Vec::new());
                let start = classic::Setup { seed: setup.seed.cast_unsigned(), ties, typical };
                classic::policy(self.name(), &start)
            }
        };
        policy.ok_or(ReplayError::NoPolicy { policy: self })
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
    }
}
