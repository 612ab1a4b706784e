use tokio::io::AsyncWriteExt;
use tokio::time::timeout;

use super::*;

const TIMEOUT: Duration = Duration::from_mins(1);

#[tokio::test]
async fn what_a_killed_agent_left_is_replaced_and_a_live_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep/er/dra.sock");
    let socket = Socket::bind(&path).unwrap();
    assert!(matches!(Socket::bind(&path), Err(SocketError::Busy(_))));
    // The standard library's listener leaves its file, as a killed process does.
    let stale = folder.path().join("stale.sock");
    drop(std::os::unix::net::UnixListener::bind(&stale).unwrap());
    assert!(stale.exists());
    let replaced = Socket::bind(&stale).unwrap();
    assert!(replaced.is_in_place());
    drop(socket);
    assert!(!path.exists());
}

#[tokio::test]
async fn what_is_no_socket_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dra.sock");
    fs::write(&path, "precious").unwrap();
    assert!(matches!(Socket::bind(&path), Err(SocketError::InTheWay(_))));
    assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    let long = folder.path().join("x".repeat(120));
    let error = Socket::bind(&long).unwrap_err().to_string();
    assert!(error.contains("107"), "{error}");
}

#[tokio::test]
async fn replaced_socket_file_is_not_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dra.sock");
    let socket = Socket::bind(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let successor = Socket::bind(&path).unwrap();
    assert!(!socket.is_in_place());
    drop(socket);
    assert!(successor.is_in_place());
}

#[tokio::test(start_paused = true)]
async fn sockets_that_vanish_come_back_and_go_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let (plugin, registration) = (folder.path().join("a.sock"), folder.path().join("b.sock"));
    let stop = CancellationToken::new();
    let (mut plugin_calls, _registration_calls) =
        accept(Socket::bind(&plugin).unwrap(), Socket::bind(&registration).unwrap(), stop.clone());
    let mut client = UnixStream::connect(&plugin).await.unwrap();
    client.write_all(b"x").await.unwrap();
    plugin_calls.recv().await.unwrap().unwrap();
    fs::remove_file(&plugin).unwrap();
    fs::remove_file(&registration).unwrap();
    // Time is paused and advances while the runtime is idle, so the next check needs no wait.
    let back = async {
        while !(plugin.exists() && registration.exists()) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    timeout(Duration::from_mins(1), back).await.unwrap();
    let _client = UnixStream::connect(&plugin).await.unwrap();
    plugin_calls.recv().await.unwrap().unwrap();
    stop.cancel();
    let gone = async {
        while plugin.exists() || registration.exists() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, gone).await.unwrap();
}
