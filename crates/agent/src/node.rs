//! Drivers and their prepared devices, as the kubelet names them.

use std::path::{Path, PathBuf};

use octavo_api::names;

/// End of a registration socket's name.
///
/// The `@` is required. On this socket the kubelet sends the percent-encoded path as HTTP/2's `:authority`. The h2
/// library rejects an authority with `%` before any handler runs, unless the `%` precedes an `@` and passes as user
/// info. After the `@` only `[A-Za-z0-9._~-]` may follow. A test covers both forms.
const REGISTRATION_SUFFIX: &str = "@reg.sock";

/// A DRA driver that the agent is to the kubelet. Each has its own sockets, checkpoints and devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraDriver {
    name: &'static str,
}

impl DraDriver {
    /// The driver of GPUs, shares and MIG devices.
    pub const GPU: Self = Self { name: names::DRIVER };
    /// The driver of channels and daemons of `ComputeDomains`.
    pub const COMPUTE_DOMAIN: Self = Self { name: names::DRIVER_COMPUTE_DOMAIN };

    /// Its name in slices, classes, claims and the kubelet.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Vendor and class of its CDI devices (CDI specification, `kind`).
    pub fn cdi_kind(self) -> String {
        format!("k8s.{}/claim", self.name)
    }

    /// Begin of the file names of its CDI specs; a claim's UID follows.
    pub(crate) fn cdi_file_prefix(self) -> String {
        format!("k8s.{}-claim_", self.name)
    }

    /// The folder of its socket and its checkpoints below a kubelet's root.
    pub fn plugin_folder(self, kubelet_root: &Path) -> PathBuf {
        kubelet_root.join("plugins").join(self.name)
    }

    /// The folder of its checkpoints below a kubelet's root.
    pub fn checkpoint_folder(self, kubelet_root: &Path) -> PathBuf {
        self.plugin_folder(kubelet_root).join("checkpoint")
    }

    /// File name of its registration socket: `<name>@reg.sock`, with an instance id `<name>-<id>@reg.sock`.
    pub fn registration_socket(self, instance: Option<&str>) -> String {
        match instance {
            None => format!("{}{REGISTRATION_SUFFIX}", self.name),
            Some(id) => format!("{}-{id}{REGISTRATION_SUFFIX}", self.name),
        }
    }

    /// Whether a file name is that of its registration socket, from any instance.
    pub fn is_registration_socket(self, name: &str) -> bool {
        let id = name.strip_prefix(self.name);
        let id = id.and_then(|rest| rest.strip_suffix(REGISTRATION_SUFFIX));
        id.is_some_and(|id| id.is_empty() || id.starts_with('-'))
    }
}

/// A prepared device of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedDevice {
    /// Requests of the claim that the device serves.
    pub requests: Vec<String>,
    /// Pool.
    pub pool: String,
    /// Device.
    pub device: String,
    /// Qualified CDI names for the runtime.
    pub cdi_ids: Vec<String>,
    /// Share id, if the device was allocated in parts.
    pub share_id: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_socket_has_its_at_sign_and_plain_characters_after_it() {
        let uid = "0b8a2e5c-9d7b-4f0e-8a65-3f1d2c4b5a69";
        for (driver, other) in [
            (DraDriver::GPU, DraDriver::COMPUTE_DOMAIN),
            (DraDriver::COMPUTE_DOMAIN, DraDriver::GPU),
        ] {
            for instance in [None, Some(uid)] {
                let name = driver.registration_socket(instance);
                let (before, after) = name.split_once('@').unwrap();
                assert!(before.starts_with(driver.name()));
                let is_plain = |c: char| c.is_ascii_alphanumeric() || "._~-".contains(c);
                assert!(!after.is_empty() && after.chars().all(is_plain), "{after}");
                assert!(driver.is_registration_socket(&name), "{name}");
                assert!(!other.is_registration_socket(&name), "{name}");
            }
        }
        assert_eq!(DraDriver::GPU.registration_socket(None), "gpu.nvidia.com@reg.sock");
        for name in ["gpu.nvidia.com-reg.sock", "gpu.nvidia.comx@reg.sock"] {
            assert!(!DraDriver::GPU.is_registration_socket(name), "{name}");
        }
    }

    #[test]
    fn drivers_share_no_folder() {
        let root = Path::new("/var/lib/kubelet");
        let folder = DraDriver::GPU.checkpoint_folder(root);
        assert_eq!(folder, Path::new("/var/lib/kubelet/plugins/gpu.nvidia.com/checkpoint"));
        assert!(!folder.starts_with(DraDriver::COMPUTE_DOMAIN.plugin_folder(root)));
        assert_eq!(DraDriver::GPU.cdi_kind(), octavo_cdi::KIND);
    }
}
