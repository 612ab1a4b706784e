//! What a reload takes away and has to bring back, in a file: if the agent dies in between, the next one of the same boot brings it back.
//!
//! The file is written before anything is taken away, and empty once all is back. Its lock is held meanwhile. A text that is not whole is
//! of an agent that died while it wrote, and so had taken nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What is taken away, in that order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Taken {
    /// Services of the host's systemd.
    pub(super) services: Vec<String>,
    /// Modules.
    pub(super) modules: Vec<String>,
}

/// The file, which this process has locked.
#[derive(Debug)]
pub(super) struct Note {
    file: File,
    /// What it says.
    pub(super) taken: Taken,
}

impl Note {
    /// Notes what is about to be taken away.
    pub(super) fn begin(path: &Path, taken: Taken) -> io::Result<Self> {
        fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
        let mut file = open(OpenOptions::new().create(true), path)?;
        file.set_len(0)?;
        file.write_all(&serde_json::to_vec(&taken)?)?;
        Ok(Self { file, taken })
    }

    /// The note that another process left; `None` if nothing is to be brought back. Waits for a reload that still runs.
    pub(super) fn left(path: &Path) -> io::Result<Option<Self>> {
        let mut file = match open(&mut OpenOptions::new(), path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let taken = serde_json::from_str(&text).ok();
        Ok(taken.map(|taken| Self { file, taken }))
    }

    /// All is back. The file stays, so that its lock is always that of the file with this name.
    pub(super) fn end(self) -> io::Result<()> {
        self.file.set_len(0)
    }
}

fn open(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.read(true).write(true).open(path)?;
    file.lock()?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken() -> Taken {
        Taken { services: vec!["a.service".to_owned()], modules: vec!["nvidia".to_owned()] }
    }

    #[test]
    fn a_note_is_left_until_all_is_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("octavo/note.json");
        assert!(Note::left(&path).unwrap().is_none());
        // The process ends.
        drop(Note::begin(&path, taken()).unwrap());
        let left = Note::left(&path).unwrap().unwrap();
        assert_eq!(left.taken, taken());
        left.end().unwrap();
        assert!(Note::left(&path).unwrap().is_none());
        Note::begin(&path, taken()).unwrap().end().unwrap();
        assert!(Note::left(&path).unwrap().is_none());
    }

    #[test]
    fn a_note_that_was_not_written_whole_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note.json");
        fs::write(&path, r#"{"services": [], "modu"#).unwrap();
        assert!(Note::left(&path).unwrap().is_none());
        drop(Note::begin(&path, taken()).unwrap());
        assert!(Note::left(&path).unwrap().is_some(), "the longer text is replaced as a whole");
    }

    #[test]
    fn the_next_process_waits_for_a_reload_that_runs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note.json");
        let running = Note::begin(&path, taken()).unwrap();
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err());
        running.end().unwrap();
        other.lock().unwrap();
    }
}
