use super::*;

fn introduction(endpoint: &str) -> Introduction {
    Introduction {
        driver: "gpu.nvidia.com".to_owned(),
        endpoint: PathBuf::from(endpoint),
        dra: DraVersion::V1,
        health: HealthVersion::V1Alpha1,
    }
}

#[tokio::test]
async fn the_last_registered_instance_wins_and_the_former_comes_back_when_it_goes() {
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    assert!(plugins.get("gpu.nvidia.com").is_err());
    plugins.add(Path::new("/r/old@reg.sock"), introduction("/p/old.sock"), &parent).unwrap();
    let new =
        plugins.add(Path::new("/r/new@reg.sock"), introduction("/p/new.sock"), &parent).unwrap();
    let endpoint = || plugins.get("gpu.nvidia.com").map(|i| i.introduction.endpoint.clone());
    assert_eq!(endpoint(), Ok(PathBuf::from("/p/new.sock")));
    plugins.remove(Path::new("/r/new@reg.sock"));
    assert!(new.gone.is_cancelled());
    assert_eq!(endpoint(), Ok(PathBuf::from("/p/old.sock")));
    plugins.remove(Path::new("/r/old@reg.sock"));
    assert_eq!(endpoint(), Err(NotRegistered("gpu.nvidia.com".to_owned())));
}

#[tokio::test]
async fn an_instance_whose_socket_went_while_it_registered_stands_in_nobody_s_way() {
    let (plugins, attempt) = (Plugins::new(), CancellationToken::new());
    plugins.add(Path::new("/r/a@reg.sock"), introduction("/p/dra.sock"), &attempt).unwrap();
    attempt.cancel();
    assert!(plugins.get("gpu.nvidia.com").is_err());
    let (socket, again) = (Path::new("/r/a@reg.sock"), CancellationToken::new());
    let instance = plugins.add(socket, introduction("/p/dra.sock"), &again).unwrap();
    assert!(Arc::ptr_eq(&instance, &plugins.get("gpu.nvidia.com").unwrap()));
}

#[tokio::test]
async fn an_instance_cannot_take_the_endpoint_of_another() {
    let (plugins, parent) = (Plugins::new(), CancellationToken::new());
    plugins.add(Path::new("/r/a@reg.sock"), introduction("/p/dra.sock"), &parent).unwrap();
    let again = plugins.add(Path::new("/r/b@reg.sock"), introduction("/p/dra.sock"), &parent);
    assert!(matches!(again, Err(AddError::EndpointTaken { .. })));
}
