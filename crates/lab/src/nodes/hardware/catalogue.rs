//! Machine descriptions for nodes: those shipped with Octavo, and files of the user.

use std::path::Path;

use anyhow::{Context as _, bail};
use octavo_machine::Machine;

/// Shipped descriptions by name.
const SHIPPED: &[(&str, &str)] = &[
    ("dgx-a100-40", include_str!("../../../../../machines/dgx-a100-40.yaml")),
    ("dgx-a100-80", include_str!("../../../../../machines/dgx-a100-80.yaml")),
    ("dgx-h100", include_str!("../../../../../machines/dgx-h100.yaml")),
    ("gb200-tray", include_str!("../../../../../machines/gb200-tray.yaml")),
    ("gh200", include_str!("../../../../../machines/gh200.yaml")),
    ("hgx-h200", include_str!("../../../../../machines/hgx-h200.yaml")),
    ("l4", include_str!("../../../../../machines/l4.yaml")),
    ("t4", include_str!("../../../../../machines/t4.yaml")),
];

/// Names and texts of the machine descriptions that ship, in order of name.
pub fn shipped_machines() -> &'static [(&'static str, &'static str)] {
    SHIPPED
}

/// Loads a shipped machine by name, or the machine in a YAML file.
pub(crate) fn load(name_or_path: &str) -> anyhow::Result<Machine> {
    if let Some((_, text)) = SHIPPED.iter().find(|(name, _)| *name == name_or_path) {
        return Machine::parse(text).with_context(|| format!("read the machine {name_or_path}"));
    }
    let path = Path::new(name_or_path);
    if name_or_path.contains('/') || path.extension().is_some() {
        return Machine::read(path).with_context(|| format!("read the machine {name_or_path}"));
    }
    let names: Vec<&str> = SHIPPED.iter().map(|(name, _)| *name).collect();
    bail!(
        "there is no machine {name_or_path}: name one of {}, or the path of a YAML file such as \
         ./{name_or_path}.yaml",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_machine_that_ships_is_known_by_its_name() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines");
        let files: BTreeSet<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        let names: BTreeSet<String> = SHIPPED.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names, files);
        for name in names {
            assert_eq!(load(&name).unwrap().name, name);
        }
    }

    #[test]
    fn user_file_is_read_and_its_faults_are_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("mine.yaml");
        let text = load("l4").unwrap().to_yaml().unwrap();
        std::fs::write(&path, text.replace("name: l4", "name: mine")).unwrap();
        assert_eq!(load(path.to_str().unwrap()).unwrap().name, "mine");
        std::fs::write(&path, text.replace("minor: 1", "minor: 0")).unwrap();
        let message = format!("{:#}", load(path.to_str().unwrap()).unwrap_err());
        assert!(message.contains("mine.yaml"), "{message}");
        assert!(message.contains("gpus[1].minor"), "{message}");
    }

    #[test]
    fn an_unknown_name_lists_the_known_ones() {
        let message = load("dgx-h1000").unwrap_err().to_string();
        assert!(message.contains("dgx-h100, gb200-tray"), "{message}");
        assert!(message.contains("./dgx-h1000.yaml"), "{message}");
    }
}
