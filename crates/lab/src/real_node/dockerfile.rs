//! What the `Dockerfile` puts into Octavo's image. It is the one list: the lab packs the same files.

use std::path::Path;

use anyhow::{Context as _, bail};

/// The file.
const DOCKERFILE: &str = include_str!("../../../../Dockerfile");
/// The license that the image has.
const LICENSE: &str = include_str!("../../../../LICENSE");
/// Folder in which the first stage leaves the programs.
const BUILT: &str = "/out/";

/// A file of the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ImageFile {
    /// Its absolute path in the image.
    pub(super) path: &'static Path,
    /// What it is.
    pub(super) content: Content,
}

/// Where the content of a file comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// The program of this name.
    Program(&'static str),
    /// This text.
    Text(&'static str),
}

/// The files that the last stage copies.
pub(super) fn files() -> anyhow::Result<Vec<ImageFile>> {
    let (_, image) = DOCKERFILE.rsplit_once("\nFROM ").context("the Dockerfile has no stage")?;
    let copies = image.lines().filter_map(|line| line.strip_prefix("COPY "));
    let file = |copy: &'static str| {
        let mut words = copy.split_whitespace().filter(|word| !word.starts_with("--"));
        let (Some(from), Some(to), None) = (words.next(), words.next(), words.next()) else {
            bail!("this line of the Dockerfile does not copy one file: COPY {copy}");
        };
        let content = match (from.strip_prefix(BUILT), from) {
            (Some(name), _) => Content::Program(name),
            (None, "LICENSE") => Content::Text(LICENSE),
            (None, other) => bail!("the lab's image lacks {other}, which the Dockerfile copies"),
        };
        Ok(ImageFile { path: Path::new(to), content })
    };
    copies.map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lab_can_pack_what_the_dockerfile_copies() {
        let files = files().unwrap();
        for name in ["octavo", "octavo-agent"] {
            let is_it = |file: &&ImageFile| file.content == Content::Program(name);
            let program = files.iter().find(is_it).unwrap();
            assert_eq!(program.path, Path::new("/usr/local/bin").join(name));
        }
        assert!(files.iter().all(|file| file.path.is_absolute()), "{files:?}");
        assert!(DOCKERFILE.contains("\nENTRYPOINT [\"octavo\"]\n"), "the lab starts it so");
    }
}
