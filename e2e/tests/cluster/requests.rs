//! The charge of a pod of a template, beside the pod that the API server and the scheduler see. Random templates become pods by
//! dry run on a real API server with its admission plugins, and Kubernetes' own library computes the requests of the
//! admitted pods.

mod cache;
mod compare;
mod kinds;
mod server;
mod templates;
mod world;

use std::time::Instant;

use switchyard_e2e::{Cluster, ClusterSpec, Environment, fixture};

use crate::common::random;
use compare::{Tally, Template, judge_in_all_orders, report};
use server::Server;
use world::World;

/// Differences that are printed in full.
const TOLD: usize = 4;

static ENVIRONMENT: fixture::Shared<Environment> = fixture::Shared::new(|| {
    Box::pin(Environment::builder("requests").cluster(ClusterSpec::new("one")).start())
});

async fn cluster() -> &'static Cluster {
    ENVIRONMENT.get().await.unwrap().cluster("one")
}

/// `$REQUESTS_TEMPLATES`, or as many as take seconds.
fn templates_wanted() -> usize {
    std::env::var("REQUESTS_TEMPLATES").ok().map_or(1000, |count| count.parse().unwrap())
}

#[test]
fn a_template_is_charged_what_its_pod_requests() {
    fixture::run(async {
        let (seed, mut random) = random::seeded_by("REQUESTS_SEED");
        let wanted = templates_wanted();
        let cluster = cluster().await;
        let server = Server::new(cluster).await;
        let world = World::new(cluster, &server, &mut random, (wanted / 40).clamp(10, 60)).await;
        let start = Instant::now();
        let templates: Vec<Template<'_>> = (0..wanted)
            .map(|_| Template {
                namespace: random.pick(&world.namespaces),
                spec: templates::pod_spec(&mut random),
            })
            .collect();
        let specs: Vec<_> =
            templates.iter().map(|it| (it.namespace.name.as_str(), &it.spec)).collect();
        let pods = server.admitted(&specs).await.unwrap();
        let (mut tally, mut different) = (Tally::default(), Vec::new());
        for (template, pod) in templates.iter().zip(&pods) {
            match judge_in_all_orders(&server, &world, template, &template.spec, pod).await {
                Ok(class) => tally.add_judged(class, pod),
                Err(difference) => {
                    tally.add(format!("DIFFERENT: {}", difference.class));
                    different.push(template);
                }
            }
        }
        println!("{wanted} templates in {:.1} s\n{tally}", start.elapsed().as_secs_f64());
        for template in different.iter().take(TOLD) {
            println!("{}\n", report(&server, &world, template).await);
        }
        assert!(
            different.is_empty(),
            "seed {seed}: {} of {wanted} templates differ\n{tally}",
            different.len()
        );
        let equal = tally.count("equal");
        assert!(
            equal * 2 > wanted,
            "seed {seed}: of {wanted} templates only {equal} became pods\n{tally}"
        );
    });
}
