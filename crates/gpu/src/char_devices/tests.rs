use super::CharDevices;

#[test]
fn names_have_the_numbers_of_their_lines() {
    let text = "Character devices:\n  1 mem\n  4 /dev/vc/0\n  4 tty\n195 nvidia\n195 nvidiactl\n\
                511 nvidia-uvm\n512 nvidia-uvm\n\nBlock devices:\n  8 sd\n259 blkext\n";
    let devices = CharDevices::parse(text);
    let numbers = ["mem", "/dev/vc/0", "tty", "nvidia", "nvidiactl", "nvidia-uvm"];
    let numbers = numbers.map(|name| devices.major(name));
    assert_eq!(numbers, [1, 4, 4, 195, 195, 511].map(Some));
    assert_eq!(devices.major("sd"), None, "a block device");
    assert_eq!(devices.major("nvidia-caps"), None);
}

#[test]
fn a_text_of_another_form_has_no_devices() {
    let texts =
        ["", "195 nvidia\n", "Block devices:\n195 nvidia\n", "Character devices:\nnvidia\n"];
    for text in texts {
        assert_eq!(CharDevices::parse(text), CharDevices::default(), "{text:?}");
    }
}

#[test]
fn a_missing_file_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = CharDevices::read(folder.path()).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    std::fs::write(folder.path().join("devices"), "Character devices:\n195 nvidia\n").unwrap();
    assert_eq!(CharDevices::read(folder.path()).unwrap().major("nvidia"), Some(195));
}
