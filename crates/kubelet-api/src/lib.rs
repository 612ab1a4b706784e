//! The wire contract between the kubelet and a node's plugins.
//!
//! The messages, clients and servers are generated from the .proto files in `proto/`. These are
//! written for Octavo and declare the same packages, names and numbers as Kubernetes'; a test
//! compares them. The generated code is checked in; `cargo xtask generate` updates it.
//!
//! The names are those of the wire, converted to Rust style by the generator. The service
//! `DRAPlugin` has its server in `dra_plugin_server` and its client in `dra_plugin_client`.

#![forbid(unsafe_code)]

/// Encoding and decoding of messages outside of calls.
pub use prost::Message;

/// One module for each .proto file.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code"
)]
mod generated {
    pub mod deviceplugin_v1beta1;
    pub mod dra_health_v1;
    pub mod dra_health_v1alpha1;
    pub mod dra_v1;
    pub mod dra_v1beta1;
    pub mod pluginregistration_v1;
    pub mod podresources_v1;
}

/// Registration of a plugin with the kubelet.
pub mod registration {
    /// Version 1, the only one in use.
    pub use crate::generated::pluginregistration_v1 as v1;
}

/// Preparation of resource claims, requested by the kubelet.
pub mod dra {
    /// Version 1, of Kubernetes 1.34 and later.
    pub use crate::generated::dra_v1 as v1;
    /// Version 1beta1, for older kubelets: version 1 without share ids.
    pub use crate::generated::dra_v1beta1 as v1beta1;
}

/// Device health reported by a plugin to the kubelet (KEP-4680).
pub mod health {
    /// Version 1: the messages of version 1alpha1 under another name.
    pub use crate::generated::dra_health_v1 as v1;
    /// Version 1alpha1, used by Kubernetes 1.36.
    pub use crate::generated::dra_health_v1alpha1 as v1alpha1;
}

/// Devices as counted resources, offered by a plugin to the kubelet.
pub mod device_plugin {
    /// Version v1beta1, the only one in use.
    pub use crate::generated::deviceplugin_v1beta1 as v1beta1;
}

/// Which pods have which devices, as the kubelet has given them out.
pub mod pod_resources {
    /// Version 1.
    pub use crate::generated::podresources_v1 as v1;
}
