//! Static MIG: the MIG devices that administrators want on a node's GPUs, by the name of a layout. NVIDIA's MIG manager does the
//! same (mig-parted 0.15).
//!
//! ```text
//! label nvidia.com/mig.config --> layout --> for each GPU: what is destroyed and created (plan)
//!                                              |
//!   close the parts that change --> wait until nothing has them --> change the GPU --> open them
//! ```
//!
//! Each GPU is changed by itself, once nothing uses the parts that change. Instances that fit stay. Nothing is evicted, and no
//! other GPU is touched.

mod closed;
mod file;
mod plan;
mod wanted;

pub(crate) use closed::ClosedParts;
pub(crate) use file::layout;
pub(crate) use plan::{Change, change};
pub(crate) use wanted::{LayoutError, NamedLayout};
