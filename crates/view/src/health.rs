//! `octavo health`: the health of GPUs, and the word of a person about them.
//!
//! | module | purpose |
//! |---|---|
//! | `facts` | reads what agents and the controller write |
//! | `report`, `table` | pure: the GPUs that are not well, and the tables |
//! | `device` | pure: all that is known of one GPU, in sentences |
//! | `policies` | pure: the policies and what they do |
//! | `select` | which GPUs of a node are meant |
//! | `orders` | writes the word of a person, and waits for the agent |
//! | `manifest` | checks a policy in a file, without a cluster |

mod device;
mod error;
mod facts;
mod manifest;
mod orders;
mod policies;
mod report;
mod select;
mod table;
#[cfg(test)]
mod tests;
mod words;

pub use device::{DeviceReport, DeviceTextOptions, Name, describe, name, render as render_device};
pub use error::HealthError;
pub use facts::{HealthFacts, Unreadable, claims, node, read};
pub(crate) use facts::{NODE_HEALTHS, objects};
pub use manifest::{Checked, check};
pub use orders::{Ordered, Outcome, order, question, wait};
pub use policies::{PoliciesReport, policies, render as render_policies};
pub use report::{HealthReport, Selection, report};
pub use select::{devices, listed};
pub use table::render;
