//! The commands of `octavo lab`.

pub(crate) mod args;
pub(crate) mod command;
pub(crate) mod gpu;
pub(crate) mod imex;
pub(crate) mod logs;
pub(crate) mod output;
pub(crate) mod progress;
pub(crate) mod status;
pub(crate) mod tour;
