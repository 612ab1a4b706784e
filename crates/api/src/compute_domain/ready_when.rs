//! The annotation `octavo.dev/ready-when` of a domain.

use std::str::FromStr;

/// Which daemons a pod of a domain waits for without end ([`ANNOTATION_READY_WHEN`](crate::names::ANNOTATION_READY_WHEN)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadyWhen {
    /// `Node`: that of its own node.
    Node,
    /// `Members`: those of all nodes with an allocated channel.
    Members,
    /// A number: so many, its own among them.
    Count(u32),
}

impl FromStr for ReadyWhen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "Node" => Ok(Self::Node),
            "Members" => Ok(Self::Members),
            _ => match text.parse() {
                Ok(count) if count > 0 => Ok(Self::Count(count)),
                _ => Err(format!("{text:?} is not Node, Members or a number above 0")),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_when_is_a_word_or_a_positive_number() {
        assert_eq!("Node".parse(), Ok(ReadyWhen::Node));
        assert_eq!("Members".parse(), Ok(ReadyWhen::Members));
        assert_eq!("18".parse(), Ok(ReadyWhen::Count(18)));
        for text in ["", "0", "-1", "members", "2.5"] {
            let error = text.parse::<ReadyWhen>().unwrap_err();
            assert!(error.contains(text) && error.contains("Members"), "{error}");
        }
    }
}
