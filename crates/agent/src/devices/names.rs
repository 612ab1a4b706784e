//! Names of devices: those of NVIDIA's DRA driver.

use octavo_gpu::Gpu;
use octavo_gpu::mig::{MigPlacement, MigProfile};

/// Parsed name of a MIG device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MigName {
    /// Minor number of the GPU.
    pub minor: u32,
    /// The profile as it stands in the name: `1g10gb-me`.
    pub profile: String,
    /// The driver's id of the profile: [`MigProfile::id`].
    pub profile_id: u32,
    /// First memory slice.
    pub start: u32,
}

/// The device name of a whole GPU.
pub fn device_name(gpu: &Gpu) -> String {
    format!("gpu-{}", gpu.number)
}

/// Device name of a placement and of the instance there: `gpu-<number>-mig-<profile>-<profile id>-<first memory slice>`.
pub fn mig_name(number: u32, profile: &MigProfile, placement: MigPlacement) -> String {
    format!("gpu-{number}-mig-{}-{}-{}", label(&profile.name), profile.id, placement.start)
}

/// The counter set of a GPU.
pub fn counter_set_name(number: u32) -> String {
    format!("gpu-{number}-counter-set")
}

/// Parses the name of a MIG device; `None` for other names.
pub fn parse_mig_name(name: &str) -> Option<MigName> {
    let (minor, rest) = name.strip_prefix("gpu-")?.split_once("-mig-")?;
    // The profile may contain dashes. It ends before the last two numbers.
    let (rest, start) = rest.rsplit_once('-')?;
    let (profile, profile_id) = rest.rsplit_once('-')?;
    if profile.is_empty() {
        return None;
    }
    Some(MigName {
        minor: number(minor)?,
        profile: profile.to_owned(),
        profile_id: number(profile_id)?,
        start: number(start)?,
    })
}

/// A profile's name as part of a DNS label: `1g.10gb+me` becomes `1g10gb-me`. The profile id that follows resolves
/// ambiguities.
fn label(profile: &str) -> String {
    let kept = |letter: char| match letter.to_ascii_lowercase() {
        '.' => None,
        letter if letter.is_ascii_alphanumeric() => Some(letter),
        _ => Some('-'),
    };
    profile.chars().filter_map(kept).collect()
}

/// A number in its canonical notation.
fn number(text: &str) -> Option<u32> {
    let number: u32 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

#[cfg(test)]
mod tests;
