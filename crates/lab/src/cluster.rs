//! A lab from start to end: the control plane, its files and its processes.

pub(crate) mod add_ons;
pub(crate) mod apply;
pub(crate) mod async_fd;
pub(crate) mod binaries;
pub(crate) mod component;
pub(crate) mod kubeconfig;
pub(crate) mod lab;
pub(crate) mod layout;
pub(crate) mod lock;
pub(crate) mod manifests;
pub(crate) mod octavo_controller;
pub(crate) mod octavo_scheduler;
pub(crate) mod parent_watch;
pub(crate) mod pki;
pub(crate) mod ports;
pub(crate) mod process;
pub(crate) mod program;
pub(crate) mod ready;
pub(crate) mod repair;
pub(crate) mod settings;
pub(crate) mod start;
pub(crate) mod stop;

pub use lab::{Lab, UpOptions};
