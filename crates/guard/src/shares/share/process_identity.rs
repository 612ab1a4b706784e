//! Identity of this process beyond its pid.

use crate::platform::sys::file::{File, Mode};

/// Start time in clock ticks since boot; 0 if `/proc` cannot be read.
pub(super) fn start_time() -> u64 {
    let mut bytes = [0; 1024];
    let length = File::open(c"/proc/self/stat", Mode::Read).and_then(|file| file.read(&mut bytes));
    length.ok().and_then(|length| field_22(bytes.get(..length)?)).unwrap_or(0)
}

/// The 22nd field of `/proc/<pid>/stat`. The second is a name in parentheses, which may contain
/// anything.
fn field_22(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    let field =
        stat.get(end + 1..)?.split(|byte| *byte == b' ').filter(|part| !part.is_empty()).nth(19)?;
    core::str::from_utf8(field).ok()?.trim_ascii_end().parse().ok()
}

/// Inode of the pid namespace; 0 if it cannot be read.
pub(super) fn pid_namespace() -> u64 {
    let file = File::open(c"/proc/self/ns/pid", Mode::Read);
    file.and_then(|file| file.identity()).map_or(0, |(_, identity)| identity.inode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_moves_no_field() {
        let stat = b"7 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n";
        assert_eq!(field_22(stat), Some(4711));
        assert_eq!(field_22(b"7 (a) S 1"), None);
    }

    #[test]
    fn this_process_began_some_time_ago_in_some_namespace() {
        assert_ne!(start_time(), 0);
        assert_ne!(pid_namespace(), 0);
    }
}
