//! The volumes of a pod that restrict its nodes.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::objects::{PodVolume, VolumeSource};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireVolume {
    #[serde(default)]
    name: String,
    persistent_volume_claim: Option<WireClaimSource>,
    ephemeral: Option<IgnoredAny>,
    csi: Option<WireCsi>,
    gce_persistent_disk: Option<WireGce>,
    aws_elastic_block_store: Option<WireEbs>,
    iscsi: Option<WireIscsi>,
    rbd: Option<WireRbd>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireClaimSource {
    #[serde(default)]
    claim_name: String,
}

#[derive(Debug, Deserialize)]
struct WireCsi {
    #[serde(default)]
    driver: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireGce {
    #[serde(default)]
    pd_name: String,
    read_only: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct WireEbs {
    #[serde(default, rename = "volumeID")]
    volume_id: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireIscsi {
    #[serde(default)]
    iqn: String,
    read_only: Option<bool>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRbd {
    #[serde(default)]
    image: String,
    pool: Option<String>,
    read_only: Option<bool>,
}

impl WireVolume {
    /// `None` for a volume that does not restrict nodes.
    ///
    /// The kinds of disks are those of kube-scheduler's `VolumeRestrictions`. An RBD image is
    /// identified by pool and image. kube-scheduler also compares the monitors, and so allows
    /// images of the same name in two clusters on one node; this does not.
    pub(super) fn read(self) -> Option<PodVolume> {
        let exclusive = |kind: &str, id: String, read_only: Option<bool>| {
            Some(VolumeSource::Exclusive(kind.to_owned(), id, read_only == Some(true)))
        };
        let source = if let Some(claim) = self.persistent_volume_claim {
            Some(VolumeSource::Claim(claim.claim_name))
        } else if self.ephemeral.is_some() {
            Some(VolumeSource::Ephemeral)
        } else if let Some(csi) = self.csi {
            Some(VolumeSource::Csi(csi.driver))
        } else if let Some(disk) = self.gce_persistent_disk {
            exclusive("gcePersistentDisk", disk.pd_name, disk.read_only)
        } else if let Some(disk) = self.aws_elastic_block_store {
            // EBS volumes cannot be shared for reading either.
            exclusive("awsElasticBlockStore", disk.volume_id, None)
        } else if let Some(disk) = self.iscsi {
            exclusive("iscsi", disk.iqn, disk.read_only)
        } else if let Some(disk) = self.rbd {
            let pool =
                disk.pool.filter(|pool| !pool.is_empty()).unwrap_or_else(|| "rbd".to_owned());
            exclusive("rbd", format!("{pool}/{}", disk.image), disk.read_only)
        } else {
            None
        };
        Some(PodVolume { name: self.name, source: source? })
    }
}
