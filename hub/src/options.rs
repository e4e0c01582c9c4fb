//! What a caller gives to run a hub, and what the configuration file says of dispatching.

use std::net::TcpListener;
use std::path::PathBuf;

use switchyard_api::config::{Configuration, MultiKueue};
use switchyard_api::names;

use crate::dispatch::{Mode, Settings};
use crate::hosted::PATH_PREFIX;
use crate::server;

/// The round of Kueue's incremental dispatcher, in milliseconds.
const ROUND: i64 = 5 * 60_000;
/// For so long no other worker may preempt for a workload, as in Kueue. Milliseconds.
const PREEMPTION_TIMEOUT: i64 = 5 * 60_000;

/// What a caller gives to run a hub.
pub struct Options {
    /// The admission controller: of the hub, or of the single cluster.
    pub controller: switchyard_controller::Options,
    /// The rest of a hub; none runs a single cluster.
    pub hub: Option<HubOptions>,
}

/// What a hub needs besides its controller.
pub struct HubOptions {
    /// Where agents dial in.
    pub listener: TcpListener,
    /// How agents reach that, for people: https://HOST[:PORT].
    pub advertise: Option<String>,
    /// Names and addresses in the listener's certificate, besides the one that agents ask for.
    pub names: Vec<String>,
    /// Deadlines and bounds.
    pub server: server::Settings,
    /// Where kubeconfigs by path may lie.
    pub kubeconfig_dir: PathBuf,
    /// The dispatcher's settings; none takes them from the configuration.
    pub dispatch: Option<Settings>,
}

impl HubOptions {
    /// A hub that agents reach at this listener.
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            advertise: None,
            names: Vec::new(),
            server: server::Settings::default(),
            kubeconfig_dir: PATH_PREFIX.into(),
            dispatch: None,
        }
    }
}

/// What the configuration says of dispatching.
pub fn dispatch_settings(config: &Configuration) -> Settings {
    let multi_kueue = &config.multi_kueue;
    let mode = match multi_kueue.dispatcher_name.as_str() {
        names::DISPATCHER_BEST_FIT => Mode::BestFit,
        names::DISPATCHER_ALL_AT_ONCE => Mode::AllAtOnce,
        names::DISPATCHER_INCREMENTAL => {
            let configured = config.enabled("MultiKueueIncrementalDispatcherConfig");
            let step = if configured {
                multi_kueue.step_size()
            } else {
                MultiKueue::default().step_size()
            };
            Mode::Incremental { step, round: ROUND }
        }
        _ => Mode::External,
    };
    let timeout =
        i64::try_from(multi_kueue.worker_lost_timeout.std().as_millis()).unwrap_or(i64::MAX);
    let gated = mode.keeps_copies() && config.enabled("MultiKueueOrchestratedPreemption");
    let preemption_timeout = gated.then_some(PREEMPTION_TIMEOUT);
    let by_name = !config.enabled("MultiKueueIncrementalDispatcherRespectConfigOrder");
    let mut settings = Settings {
        mode,
        worker_lost_timeout: timeout,
        preemption_timeout,
        by_name,
        ..Settings::default()
    };
    if multi_kueue.gc_interval.std().is_zero() {
        // No garbage collection: what is unknown is reported, and stays.
        settings.orphan_after = i64::MAX;
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatchers_are_known_by_kueues_names() {
        let mode = |name: &str| {
            let mut config = Configuration::default();
            config.multi_kueue.dispatcher_name = name.to_owned();
            dispatch_settings(&config).mode
        };
        assert_eq!(dispatch_settings(&Configuration::default()).mode, Mode::BestFit);
        assert_eq!(mode("kueue.x-k8s.io/multikueue-dispatcher-all-at-once"), Mode::AllAtOnce);
        let incremental = Mode::Incremental { step: 3, round: 300_000 };
        assert_eq!(mode("kueue.x-k8s.io/multikueue-dispatcher-incremental"), incremental);
        assert_eq!(mode("example.com/mine"), Mode::External);
        assert_eq!(dispatch_settings(&Configuration::default()).worker_lost_timeout, 900_000);
    }

    #[test]
    fn gates_switch_what_the_incremental_dispatcher_goes_by() {
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, \
                    incrementalDispatcherConfig: {stepSize: 7}}\n";
        let settings = |gates: &str| {
            let config = switchyard_api::config::load_with_gates(file, gates).unwrap();
            assert_eq!(config.ignored(), []);
            let settings = dispatch_settings(&config);
            (settings.mode, settings.by_name)
        };
        let of = |step| Mode::Incremental { step, round: 300_000 };
        assert_eq!(settings(""), (of(7), false));
        assert_eq!(settings("MultiKueueIncrementalDispatcherConfig=false"), (of(3), false));
        assert_eq!(
            settings("MultiKueueIncrementalDispatcherRespectConfigOrder=false"),
            (of(7), true)
        );
    }

    #[test]
    fn copies_have_gates_where_several_clusters_are_asked_and_the_feature_is_on() {
        let timeout = |name: &str, on: bool| {
            let mut config = Configuration::default();
            config.multi_kueue.dispatcher_name = name.to_owned();
            config.feature_gates.insert("MultiKueueOrchestratedPreemption".to_owned(), on);
            dispatch_settings(&config).preemption_timeout
        };
        assert_eq!(timeout(names::DISPATCHER_ALL_AT_ONCE, true), Some(300_000));
        assert_eq!(timeout("example.com/mine", true), Some(300_000));
        assert_eq!(timeout(names::DISPATCHER_ALL_AT_ONCE, false), None);
        assert_eq!(
            timeout(names::DISPATCHER_BEST_FIT, true),
            None,
            "one cluster at a time is asked"
        );
    }
}
