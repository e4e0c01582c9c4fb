//! A worker without an agent, which the hub's pods reach by a kubeconfig, with the commands of the page.

use std::collections::BTreeSet;

use switchyard_e2e::nodes::NodeImage;
use switchyard_e2e::{ClusterSpec, Environment, fixture};

use super::reader::{Reader, shell};
use super::release::Release;
use crate::common::shell::{self, Shell};

const README: &str = "README.md";
const PAGE: &str = "docs/workers.md";

/// The placeholder of the page for the API server's address.
const ADDRESS: &str = "https://WEST:6443";

#[test]
fn worker_without_an_agent_is_added_and_used_as_the_page_says() {
    fixture::run_on_real_nodes(async {
        let release = tokio::task::spawn_blocking(Release::find).await.unwrap();
        let hub = ClusterSpec::new("hub").real_node([release.image("switchyard-hub")]);
        let images = [release.image("switchyard-hub"), NodeImage::Busybox];
        let worker = ClusterSpec::new("west").real_node(images);
        let worker = worker.controller("serviceaccount-token-controller");
        let clusters = Environment::builder("by-kubeconfig").cluster(hub).cluster(worker);
        let environment = clusters.start().await.unwrap();
        let shell = shell(&environment, &["hub", "west"], &release).await;
        let promises = [
            ("switchyard cluster add west", "west is connected."),
            ("switchyard get jobs", "Running   2/2     west"),
            ("switchyard check", "All checks passed."),
            ("kubectl --context west -n team-a get pods", "Running"),
            ("kubectl --context west -n team-a logs", "hello"),
        ];
        let reader = Reader::new(&shell, &promises);
        let section = |heading| shell::without_output(shell::commands(PAGE, heading));

        // The address of the test's kubeconfigs is loopback, which is another one for each pod.
        let own = shell.run("kubectl --context west config view --minify -o jsonpath='{..server}'");
        let service =
            "kubectl --context west get service kubernetes -o jsonpath='{.spec.clusterIP}'";
        let address = format!("https://{}", shell.run(service));
        let use_address = |address: &str| {
            shell.run(&format!("kubectl config set-cluster west --server={address}"));
        };
        use_address(&address);

        let install = shell::commands(README, "### A hub and two workers").swap_remove(0);
        reader.follows(vec![install]).await;
        reader.follows(section("### From nothing to a job")).await;
        let pods = pods(&shell);
        assert_eq!(pods.len(), 2);

        use_address(&own);
        let mut with_address = section("### Address of the worker");
        with_address.iter_mut().for_each(|line| *line = line.replace(ADDRESS, &address));
        reader.follows(with_address).await;

        let before = tokens(&shell);
        reader.follows(section("### Rotate the token")).await;
        let after = tokens(&shell);
        assert_eq!((before.len(), after.len()), (1, 1), "{before:?} {after:?}");
        assert!(before.is_disjoint(&after), "the old token is gone: {after:?}");
        use_address(&address);
        reader.follows(section("### Use a kubeconfig of yours")).await;
        reader.is_done();
        let stored = "kubectl -n switchyard-system get secret west-kubeconfig -o jsonpath='{.data.kubeconfig}' | base64 -d";
        let stored = shell.run(stored);
        assert!(stored.contains("token: ") && !stored.contains("client-key-data"), "{stored}");
        assert_eq!(self::pods(&shell), pods, "the job has the pods that it started with");
    });
}

/// The job's pods on the worker, with the restarts of their containers.
fn pods(shell: &Shell) -> BTreeSet<String> {
    let each = "{range .items[*]}{.metadata.uid} {..restartCount}{\"\\n\"}{end}";
    let get = format!("kubectl --context west -n team-a get pods -o jsonpath='{each}'");
    shell.run(&get).lines().map(str::to_owned).collect()
}

/// The Secrets with tokens of the account, as the page's command lists them.
fn tokens(shell: &Shell) -> BTreeSet<String> {
    let all = shell::commands(PAGE, "### Rotate the token");
    let list = all.iter().find(|line| line.contains("get secrets")).expect("the command");
    let listed = shell.run(list);
    let rows = listed.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
    let own = rows.filter(|row| row[0].starts_with("switchyard-remote-hub-token-"));
    own.map(|row| {
        assert_eq!(row.len(), 5, "it has a hub: {row:?}");
        row[0].to_owned()
    })
    .collect()
}
