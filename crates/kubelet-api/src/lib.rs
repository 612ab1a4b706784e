//! The wire contract between the kubelet and a node's plugins.
//!
//! The messages, clients and servers here are generated from our own .proto files in `proto/`,
//! which say the same as Kubernetes' (same packages, names and numbers; a test compares them). The
//! code is checked in: `cargo xtask generate` writes it again.
//!
//! The names are those that the wire knows, made Rust's by the generator: the service `DRAPlugin`
//! has its server in `dra_plugin_server` and its client in `dra_plugin_client`.

#![forbid(unsafe_code)]

/// How a plugin introduces itself to the kubelet.
#[path = "generated"]
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod registration {
    /// Version 1, the only one in use.
    #[path = "pluginregistration_v1.rs"]
    pub mod v1;
}

/// How the kubelet has the devices of resource claims prepared.
#[path = "generated"]
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod dra {
    /// Version 1, of Kubernetes 1.34 and later.
    #[path = "dra_v1.rs"]
    pub mod v1;

    /// Version 1beta1, for older kubelets: version 1 without identifiers of shares.
    #[path = "dra_v1beta1.rs"]
    pub mod v1beta1;
}

/// How a plugin tells the kubelet of its devices' health (KEP-4680).
#[path = "generated"]
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
pub mod health {
    /// Version 1: the messages of version 1alpha1 under another name.
    #[path = "dra_health_v1.rs"]
    pub mod v1;

    /// Version 1alpha1, which Kubernetes 1.36 calls.
    #[path = "dra_health_v1alpha1.rs"]
    pub mod v1alpha1;
}
