use std::os::unix::net::UnixListener;

use super::*;
use crate::kubelet::fake_api::TEST_TIMEOUT;

async fn next(watch: &mut SocketWatch) -> Changes {
    tokio::time::timeout(TEST_TIMEOUT, watch.changes()).await.unwrap().unwrap()
}

#[tokio::test]
async fn sockets_are_reported_whether_old_or_new() {
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a"), folder.path().join("b"));
    std::fs::create_dir(&first).unwrap();
    std::fs::create_dir(&second).unwrap();
    let early = first.join("early@reg.sock");
    let _early = UnixListener::bind(&early).unwrap();
    std::fs::write(first.join("file.sock"), "").unwrap();

    let mut watch = SocketWatch::new(&[first, second.clone()]).unwrap();
    assert_eq!(watch.scan().unwrap(), [(0, SocketEvent::Appeared(early))]);

    let late = second.join("late@reg.sock");
    let _hidden = UnixListener::bind(second.join(".hidden.sock")).unwrap();
    let _late = UnixListener::bind(&late).unwrap();
    assert_eq!(next(&mut watch).await, [(1, SocketEvent::Appeared(late.clone()))]);
    std::fs::remove_file(&late).unwrap();
    assert_eq!(next(&mut watch).await, [(1, SocketEvent::Gone(late))]);
}

#[tokio::test]
async fn rebound_socket_is_reported_as_removed_and_added() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("driver@reg.sock");
    let _old = UnixListener::bind(&path).unwrap();
    let mut watch = SocketWatch::new(&[folder.path().to_owned()]).unwrap();
    watch.scan().unwrap();
    std::fs::remove_file(&path).unwrap();
    let _new = UnixListener::bind(&path).unwrap();
    let mut seen = Changes::new();
    while seen.len() < 2 {
        seen.extend(next(&mut watch).await);
    }
    assert_eq!(seen, [(0, SocketEvent::Gone(path.clone())), (0, SocketEvent::Appeared(path))]);
}
