//! The folder of CDI specs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use octavo_cdi::{KIND, Spec};
use octavo_node::files::{StorageError, TEMP_SUFFIX, is_plain_name, write_atomically};
use serde::Deserialize;

use crate::checkpoint::{Record, decode, encode};
use crate::node::DraDriver;

/// Part of a file name after the UID.
const SUFFIX: &str = ".yaml";
/// Part of the first line before the record.
const RECORD_PREFIX: &str = "# octavo-record: ";

/// Qualified CDI name of a claim's device, or of one of its shares.
pub(crate) fn cdi_id(uid: &str, device: &str, share: Option<&str>) -> String {
    format!("{KIND}={}", device_name(uid, device, share))
}

/// Name of a claim's device within the kind. Device names contain no dot, so the dot separates the share id.
pub(crate) fn device_name(uid: &str, device: &str, share: Option<&str>) -> String {
    match share {
        None => format!("{uid}-{device}"),
        Some(share) => format!("{uid}-{device}.{share}"),
    }
}

/// The folder of CDI specs. Only files of one driver's claims are touched.
#[derive(Debug)]
pub(crate) struct CdiFolder {
    folder: PathBuf,
    /// Part of a file name before the UID.
    prefix: String,
}

/// Content of a claim's spec.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum SpecContent {
    /// Its record, whole.
    Record(Box<Record>),
    /// Device names only: NVIDIA's driver wrote the spec, or its first line is damaged.
    Devices(Vec<String>),
    /// Nothing.
    Damaged,
}

impl CdiFolder {
    /// Opens a folder for the claims of a driver, creates it if missing, and removes half-written files of a crash.
    pub(crate) fn open(folder: &Path, driver: DraDriver) -> Result<Self, StorageError> {
        let prefix = driver.cdi_file_prefix();
        fs::create_dir_all(folder).map_err(StorageError::of("create", folder))?;
        for entry in fs::read_dir(folder).map_err(StorageError::of("read", folder))?.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.starts_with(&format!(".{prefix}")) && name.ends_with(TEMP_SUFFIX) {
                let path = entry.path();
                fs::remove_file(&path).map_err(StorageError::of("remove", &path))?;
            }
        }
        Ok(Self { folder: folder.to_owned(), prefix })
    }

    /// UIDs of the claims with a spec, sorted.
    pub(crate) fn uids(&self) -> Result<Vec<String>, StorageError> {
        let mut uids = Vec::new();
        for entry in fs::read_dir(&self.folder).map_err(StorageError::of("read", &self.folder))? {
            let entry = entry.map_err(StorageError::of("read", &self.folder))?;
            let name = entry.file_name();
            let uid = name
                .to_str()
                .and_then(|name| name.strip_prefix(&self.prefix)?.strip_suffix(SUFFIX))
                .filter(|uid| is_plain_name(uid));
            uids.extend(uid.map(str::to_owned));
        }
        uids.sort();
        Ok(uids)
    }

    /// Writes a claim's spec. The spec is not flushed: it can be rebuilt from the record, which is.
    pub(crate) fn write(&self, record: &Record, spec: &Spec) -> Result<(), StorageError> {
        self.write_text(&record.claim.uid, &text_of(record, spec))
    }

    /// Whether a claim's spec exists exactly as it would be written now.
    pub(crate) fn is_intact(&self, record: &Record, spec: &Spec) -> bool {
        self.has_text(&record.claim.uid, &text_of(record, spec))
    }

    /// Writes the text of a claim's spec, without flushing it.
    pub(crate) fn write_text(&self, uid: &str, text: &str) -> Result<(), StorageError> {
        write_atomically(&self.path(uid), text.as_bytes(), false)
    }

    /// Whether a claim's spec has a text.
    pub(crate) fn has_text(&self, uid: &str, text: &str) -> bool {
        fs::read(self.path(uid)).is_ok_and(|found| found == text.as_bytes())
    }

    /// Removes a claim's spec if it exists.
    pub(crate) fn remove(&self, uid: &str) -> Result<(), StorageError> {
        let path = self.path(uid);
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result.map_err(StorageError::of("remove", &path)),
        }
    }

    /// Reads a claim's spec; `None` if it does not exist.
    pub(crate) fn read(&self, uid: &str) -> Option<SpecContent> {
        let text = match fs::read_to_string(self.path(uid)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => return Some(SpecContent::Damaged),
        };
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        if let Some(Ok(record)) =
            first.strip_prefix(RECORD_PREFIX).map(|record| decode(record.as_bytes(), uid))
        {
            return Some(SpecContent::Record(Box::new(record)));
        }
        let body = if first.starts_with('#') { rest } else { &text };
        Some(devices_in(body, uid).map_or(SpecContent::Damaged, SpecContent::Devices))
    }

    /// The file of a claim.
    pub(crate) fn path(&self, uid: &str) -> PathBuf {
        self.folder.join(format!("{}{uid}{SUFFIX}", self.prefix))
    }
}

/// The whole text of a claim's spec.
fn text_of(record: &Record, spec: &Spec) -> String {
    format!("{RECORD_PREFIX}{}\n{}", encode(record), spec_text(spec))
}

/// The text of a spec alone.
pub(crate) fn spec_text(spec: &Spec) -> String {
    // The type holds strings and lists only, so serialization cannot fail.
    let mut text = serde_json::to_string_pretty(spec).unwrap_or_default();
    text.push('\n');
    text
}

/// Device names in a claim's spec, each once, regardless of which driver wrote it.
fn devices_in(text: &str, uid: &str) -> Option<Vec<String>> {
    #[derive(Deserialize)]
    struct Names {
        devices: Vec<Name>,
    }
    #[derive(Deserialize)]
    struct Name {
        name: String,
    }
    let names: Names = serde_saphyr::from_str(text).ok()?;
    let mut devices: Vec<String> = Vec::new();
    for device in &names.devices {
        let name = device.name.strip_prefix(uid)?.strip_prefix('-')?;
        let name = name.split_once('.').map_or(name, |(device, _)| device);
        if !devices.iter().any(|known| known == name) {
            devices.push(name.to_owned());
        }
    }
    (!devices.is_empty()).then_some(devices)
}
