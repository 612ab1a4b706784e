//! The settings `memorySwap` and `swapHostMemory`: whether shares may have memory that others leave, and give it back.

use std::path::PathBuf;
use std::str::FromStr;

use octavo_enforcement::backend::MemoryEnforcement;
use octavo_enforcement::swap::{HostBudget, SwapSettings};
use serde::Deserialize;

use super::TimeEnforcement;
use crate::claims::parse_bytes;

/// How shares with a `memoryLimit` above their request give memory back that others need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemorySwap {
    /// Not at all: such shares are refused.
    #[default]
    Off,
    /// The agent moves whole processes to the host's memory and back, by the driver's checkpoints.
    Processes,
}

/// A text names no way to swap.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no way to swap memory: give off or processes")]
pub struct MemorySwapError(String);

impl FromStr for MemorySwap {
    type Err = MemorySwapError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "processes" => Ok(Self::Processes),
            other => Err(MemorySwapError(other.to_owned())),
        }
    }
}

/// Memory of the host that swapped processes may take together, in bytes: a quantity such as `256Gi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SwapHostMemory(pub(crate) u64);

/// A text is no amount of the host's memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no amount of memory: give a quantity such as 256Gi")]
pub struct SwapHostMemoryError(String);

impl FromStr for SwapHostMemory {
    type Err = SwapHostMemoryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = parse_bytes(text).ok().and_then(|bytes| u64::try_from(bytes).ok());
        let bytes = bytes.filter(|bytes| *bytes > 0);
        bytes.map(Self).ok_or_else(|| SwapHostMemoryError(text.to_owned()))
    }
}

impl TryFrom<String> for SwapHostMemory {
    type Error = SwapHostMemoryError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

/// Why the settings do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapConfigError {
    /// There are no leases.
    #[error(
        "memorySwap is processes and timeEnforcement is off: a process that was moved waits for its lease, so set timeEnforcement to leases"
    )]
    NoLeases,
    /// There is no guard.
    #[error(
        "memorySwap is processes and memoryEnforcement is driver or off: the guard lends memory, so set memoryEnforcement to guard or auto"
    )]
    NoGuard,
    /// An amount for nothing.
    #[error("swapHostMemory is set and memorySwap is not processes")]
    NoSwap,
}

/// The settings for the watchdog; `None` if memory is not swapped. `driver_root` is what the agent sees.
pub(super) fn complete(
    (swap, host_memory): (MemorySwap, Option<SwapHostMemory>),
    time: TimeEnforcement,
    memory: MemoryEnforcement,
    driver_root: PathBuf,
) -> Result<Option<SwapSettings>, SwapConfigError> {
    if swap == MemorySwap::Off {
        return host_memory.map_or(Ok(None), |_| Err(SwapConfigError::NoSwap));
    }
    if time == TimeEnforcement::Off {
        return Err(SwapConfigError::NoLeases);
    }
    if matches!(memory, MemoryEnforcement::Driver | MemoryEnforcement::Off) {
        return Err(SwapConfigError::NoGuard);
    }
    let host = HostBudget::of(host_memory.map(|memory| memory.0));
    Ok(Some(SwapSettings { host, driver_root }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_have_the_same_values_in_files_and_flags() {
        for (text, swap) in [("off", MemorySwap::Off), ("processes", MemorySwap::Processes)] {
            assert_eq!(text.parse(), Ok(swap));
            assert_eq!(serde_json::from_value(text.into()).ok(), Some(swap));
        }
        let error = "pages".parse::<MemorySwap>().unwrap_err().to_string();
        assert!(error.contains("off or processes"), "{error}");
        assert_eq!("64Gi".parse(), Ok(SwapHostMemory(64 << 30)));
        assert_eq!(serde_json::from_value("1Gi".into()).ok(), Some(SwapHostMemory(1 << 30)));
        for text in ["", "0", "-1Gi", "all"] {
            assert!(text.parse::<SwapHostMemory>().is_err(), "{text}");
        }
    }

    #[test]
    fn swapping_needs_leases_and_the_guard() {
        use MemoryEnforcement::{Auto, Driver, Guard, Off};
        use SwapConfigError::{NoGuard, NoLeases, NoSwap};
        let with = |swap, time, memory| complete(swap, time, memory, "/driver".into());
        let (on, leases) = ((MemorySwap::Processes, None), TimeEnforcement::Leases);
        assert_eq!(with(on, TimeEnforcement::Off, Guard), Err(NoLeases));
        for memory in [Driver, Off] {
            assert_eq!(with(on, leases, memory), Err(NoGuard));
        }
        for memory in [Auto, Guard] {
            let driver_root = "/driver".into();
            let settings = SwapSettings { host: HostBudget::of(None), driver_root };
            assert_eq!(with(on, leases, memory), Ok(Some(settings)));
        }
        let memory = Some(SwapHostMemory(1 << 30));
        let settings = with((MemorySwap::Processes, memory), leases, Guard).unwrap();
        assert_eq!(settings.and_then(|settings| settings.host.bytes()), Some(1 << 30));
        assert_eq!(with((MemorySwap::Off, None), leases, Guard), Ok(None));
        assert_eq!(with((MemorySwap::Off, memory), leases, Guard), Err(NoSwap));
    }
}
