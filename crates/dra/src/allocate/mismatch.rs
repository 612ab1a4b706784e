//! Why a request cannot have a device, as the search finds it: borrowed and without names of
//! claims.

use super::capacity::CapacityMismatch;
use super::counters::CounterShortage;
use crate::claim::Rule;
use crate::features::Feature;
use crate::node::NodeSelectorError;
use crate::slice::DeviceTaint;
use octavo_cel::CelError;

/// The first reason why a request cannot have a device.
#[derive(Clone, Debug)]
pub(super) enum Mismatch<'s> {
    /// A selector of the class (or of the request, if `class` is `None`) does not match.
    Selector {
        class: Option<&'s str>,
        expression: &'s str,
    },
    /// A selector of the class (or of the request, if `class` is `None`) fails.
    Cel {
        class: Option<&'s str>,
        error: CelError,
    },
    /// The device is for other nodes.
    OtherNode,
    /// The node selector of the slice with this name is malformed.
    NodeSelector(&'s str, NodeSelectorError),
    /// The device needs a feature that is off.
    FeatureOff(Feature),
    /// Another claim holds the device.
    InUse,
    /// The same pod has taken the device.
    Together,
    Capacity(CapacityMismatch<'s>),
    Counters(CounterShortage),
    Taint(&'s DeviceTaint),
    Rule(&'s Rule),
}
