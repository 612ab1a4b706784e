//! The setting `gpuShares`: how many claims share a GPU, and what a claim gets that asks for no amount.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// Most equal shares of a GPU. With more, a share of a small GPU could have less than CUDA's own need.
const MAX_SHARES: u32 = 1024;

/// How claims share a GPU. The values are those of NVIDIA's DRA driver (`--consumable-shares`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuShares {
    /// By memory. A claim that asks for none gets the whole GPU.
    #[default]
    Memory,
    /// By this number of equal shares, of which a claim gets one if it asks for none. Each has its part of the memory.
    Count(NonZeroU32),
    /// Without limit: a claim that asks for no memory has none of its own, and may use what is free.
    Unlimited,
}

/// Why a text is no way to share GPUs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no way to share GPUs: give memory, unlimited, or the number of shares of each GPU, 1 to 1024"
)]
pub struct GpuSharesError(String);

impl GpuShares {
    /// The number of equal shares of a GPU, if they are counted.
    pub fn count(self) -> Option<NonZeroU32> {
        match self {
            Self::Count(count) => Some(count),
            Self::Memory | Self::Unlimited => None,
        }
    }
}

impl FromStr for GpuShares {
    type Err = GpuSharesError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "memory" => Ok(Self::Memory),
            "unlimited" => Ok(Self::Unlimited),
            count => {
                let count = count.parse().ok().filter(|it: &NonZeroU32| it.get() <= MAX_SHARES);
                count.map(Self::Count).ok_or_else(|| GpuSharesError(text.to_owned()))
            }
        }
    }
}

impl<'de> Deserialize<'de> for GpuShares {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = GpuShares;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("memory, unlimited, or the number of shares of each GPU")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<GpuShares, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<GpuShares, E> {
                self.visit_str(&count.to_string())
            }

            fn visit_i64<E: Error>(self, count: i64) -> Result<GpuShares, E> {
                self.visit_str(&count.to_string())
            }
        }
        deserializer.deserialize_any(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeFile;

    #[test]
    fn a_word_or_a_number_says_how_gpus_are_shared() {
        let file = |text: &str| serde_saphyr::from_str::<NodeFile>(text).map(|it| it.gpu_shares);
        let four = GpuShares::Count(NonZeroU32::new(4).unwrap());
        for (text, shares) in [
            ("gpuShares: memory", GpuShares::Memory),
            ("gpuShares: unlimited", GpuShares::Unlimited),
            ("gpuShares: 4", four),
            ("gpuShares: \"4\"", four),
        ] {
            assert_eq!(file(text).unwrap(), Some(shares), "{text}");
        }
        for text in [
            "gpuShares: 0",
            "gpuShares: -1",
            "gpuShares: 1025",
            "gpuShares: many",
            "gpuShares: [4]",
        ] {
            assert!(file(text).is_err(), "{text}");
        }
        assert_eq!((four.count(), GpuShares::Memory.count()), (NonZeroU32::new(4), None));
    }
}
