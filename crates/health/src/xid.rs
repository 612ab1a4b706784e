//! What an XID says about the device.
//!
//! The classes follow NVIDIA's catalogue with three differences. XID 94 is contained, yet an error of the hardware, so it
//! counts as evidence. XID 64 is a failed row remap, after which a device does not return. XID 45 follows another one.
//!
//! The catalogue names XID 162 to 172 without an action. 162 to 165 are about power smoothing, and the device works. The others are
//! faults, of which 171 and 172 come with a 48: the device is checked.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What an XID says about the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum XidClass {
    /// Nothing.
    Notice,
    /// The application failed. The device works.
    Application,
    /// The hardware failed, and only the application was harmed.
    Contained,
    /// A warning: the device works.
    Warning,
    /// A link failed. Its severity decides.
    Link,
    /// The device is to be checked.
    Suspect,
    /// The device fails until it is reset.
    Reset,
    /// The device fails until its node is rebooted.
    Reboot,
    /// The device is to be replaced.
    Replace,
    /// The catalogue does not have the number, or says that it is not used. The device is to be checked.
    Unknown,
}

impl XidClass {
    /// Whether an XID of it says something of the device, and not of the application alone.
    pub fn concerns_device(self) -> bool {
        !matches!(self, Self::Notice | Self::Application)
    }
}

/// The class of an XID, unless a policy gives it another one.
pub fn class_by(number: u32, overrides: &BTreeMap<u32, XidClass>) -> XidClass {
    overrides.get(&number).copied().unwrap_or_else(|| class(number))
}

/// The class of an XID.
pub fn class(number: u32) -> XidClass {
    match number {
        14 | 37 | 38 | 43 | 44 | 66 | 67 | 93 | 106..=108 | 137 | 141 | 152..=154 | 162 => {
            XidClass::Notice
        }
        8
        | 11
        | 13
        | 25
        | 31
        | 32
        | 39..=41
        | 45
        | 60
        | 68..=72
        | 75..=77
        | 80
        | 82..=86
        | 88
        | 89
        | 96..=105
        | 126..=135
        | 139 => XidClass::Application,
        94 => XidClass::Contained,
        63 | 92 | 121 | 157 | 160 | 161 | 163..=165 => XidClass::Warning,
        74 | 144..=150 => XidClass::Link,
        54 | 78 | 142 | 159 | 166..=172 => XidClass::Suspect,
        46 | 48 | 62 | 95 | 109 | 110 | 119 | 120 | 136 | 140 | 143 | 155 | 156 | 158 => {
            XidClass::Reset
        }
        79 | 151 => XidClass::Reboot,
        64 => XidClass::Replace,
        _ => XidClass::Unknown,
    }
}

/// Whether the catalogue (its last number is 172) says that the number is not used. Higher numbers may be of newer drivers.
pub fn is_unused(number: u32) -> bool {
    class(number) == XidClass::Unknown && number <= 172
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table from which the agent reads remedies: number, action, mnemonic, description.
    fn rows() -> impl Iterator<Item = (u32, &'static str)> {
        include_str!("../../gpu/data/xid.csv").lines().skip(2).map(|line| {
            let mut columns = line.split(',');
            (columns.next().unwrap().parse().unwrap(), columns.next().unwrap())
        })
    }

    #[test]
    fn classes_agree_with_the_catalogue() {
        assert_eq!(rows().count(), 172);
        for (number, action) in rows() {
            let class = class(number);
            let agrees = match action {
                "restart_app" => matches!(class, XidClass::Application | XidClass::Contained),
                "follow_other" => class == XidClass::Application,
                "none" => matches!(class, XidClass::Notice | XidClass::Warning),
                "reset_gpu" => {
                    matches!(class, XidClass::Reset | XidClass::Link | XidClass::Replace)
                }
                "reboot_node" | "restart_vm" => class == XidClass::Reboot,
                // 154 reports a change of the recovery action, which has its own signal.
                "workflow" => matches!(class, XidClass::Link | XidClass::Suspect) || number == 154,
                "support" => class == XidClass::Suspect,
                "none_listed" => {
                    matches!(class, XidClass::Notice | XidClass::Warning | XidClass::Suspect)
                }
                "unused" => class == XidClass::Unknown,
                other => panic!("the table has the new action {other}"),
            };
            assert!(agrees, "XID {number} is {class:?}, and the catalogue has {action}");
            assert_eq!(is_unused(number), action == "unused", "XID {number}");
        }
    }

    #[test]
    fn what_the_catalogue_does_not_have_is_unknown() {
        for number in [0, 173, u32::MAX] {
            assert_eq!(class(number), XidClass::Unknown, "XID {number}");
        }
        assert!(is_unused(0) && !is_unused(173));
    }

    #[test]
    fn the_fences_of_the_design_call_for_a_reset() {
        for number in [46, 48, 62, 95, 109, 119, 120, 136, 140, 143] {
            assert_eq!(class(number), XidClass::Reset, "XID {number}");
        }
    }
}
