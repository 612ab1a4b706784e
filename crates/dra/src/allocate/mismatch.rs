//! What stands between a request and a device, while searching.

use super::capacity::CapacityMismatch;
use super::counters::CounterShortage;
use crate::claim::Rule;
use crate::features::Feature;
use crate::node::NodeSelectorError;
use crate::slice::DeviceTaint;
use octavo_cel::CelError;

/// The first thing that stands between a request and a device.
#[derive(Clone, Debug)]
pub(super) enum Mismatch<'s> {
    /// A selector of the class, or the request's own, does not match.
    Selector {
        class: Option<&'s str>,
        expression: &'s str,
    },
    /// A selector of the class, or the request's own, fails.
    Cel {
        class: Option<&'s str>,
        error: CelError,
    },
    /// The device is for other nodes.
    OtherNode,
    /// The slice of this name selects the device's nodes in an unsound way.
    NodeSelector(&'s str, NodeSelectorError),
    /// It needs a feature that is off.
    FeatureOff(Feature),
    /// Another claim has it.
    InUse,
    /// It is taken for the same pod.
    Together,
    Capacity(CapacityMismatch<'s>),
    Counters(CounterShortage),
    Taint(&'s DeviceTaint),
    Rule(&'s Rule),
}
