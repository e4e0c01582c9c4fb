//! Options of a hub, and the dispatcher's settings from the configuration file.

use std::net::TcpListener;
use std::path::PathBuf;

use switchyard_api::names;
use switchyard_config::{Configuration, MultiKueue};
use switchyard_dispatcher::{DispatchMode, DispatcherSettings};

use crate::hosted::PATH_PREFIX;
use crate::server;

/// Time between two steps of Kueue's incremental dispatcher, in milliseconds.
const ROUND: i64 = 5 * 60_000;
/// How long no other worker may preempt for a workload, in milliseconds. As in Kueue.
const PREEMPTION_TIMEOUT: i64 = 5 * 60_000;

/// Options of a hub or a single cluster.
pub struct Options {
    pub controller: switchyard_controller::Options,
    /// None runs a single cluster.
    pub hub: Option<HubOptions>,
}

/// Options of a hub besides its controller's.
pub struct HubOptions {
    /// The listener for agents.
    pub listener: TcpListener,
    /// The URL at which agents reach the listener: https://HOST[:PORT].
    pub advertise: Option<String>,
    /// Names and addresses in the listener's certificate, besides the one that agents verify.
    pub names: Vec<String>,
    pub server: server::ServerSettings,
    /// The directory for kubeconfigs that are named by path.
    pub kubeconfig_dir: PathBuf,
    /// None takes them from the configuration.
    pub dispatch: Option<DispatcherSettings>,
}

impl HubOptions {
    pub fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            advertise: None,
            names: Vec::new(),
            server: server::ServerSettings::default(),
            kubeconfig_dir: PATH_PREFIX.into(),
            dispatch: None,
        }
    }
}

/// The dispatcher's settings from the configuration.
pub fn dispatch_settings(config: &Configuration) -> DispatcherSettings {
    let multi_kueue = &config.multi_kueue;
    let mode = match multi_kueue.dispatcher_name.as_str() {
        names::DISPATCHER_BEST_FIT => DispatchMode::BestFit,
        names::DISPATCHER_ALL_AT_ONCE => DispatchMode::AllAtOnce,
        names::DISPATCHER_INCREMENTAL => {
            let configured = config.enabled("MultiKueueIncrementalDispatcherConfig");
            let step = if configured {
                multi_kueue.step_size()
            } else {
                MultiKueue::default().step_size()
            };
            DispatchMode::Incremental { step, round: ROUND }
        }
        _ => DispatchMode::External,
    };
    let timeout =
        i64::try_from(multi_kueue.worker_lost_timeout.std().as_millis()).unwrap_or(i64::MAX);
    let gated = mode.keeps_copies() && config.enabled("MultiKueueOrchestratedPreemption");
    let preemption_timeout = gated.then_some(PREEMPTION_TIMEOUT);
    let by_name = !config.enabled("MultiKueueIncrementalDispatcherRespectConfigOrder");
    let mut settings = DispatcherSettings {
        mode,
        worker_lost_timeout: timeout,
        preemption_timeout,
        nominate_by_name: by_name,
        ..DispatcherSettings::default()
    };
    if multi_kueue.gc_interval.std().is_zero() {
        // Garbage collection is off: orphans are reported and stay.
        settings.orphan_grace = i64::MAX;
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dispatcher_modes_have_kueues_names() {
        let mode = |name: &str| {
            let mut config = Configuration::default();
            config.multi_kueue.dispatcher_name = name.to_owned();
            dispatch_settings(&config).mode
        };
        assert_eq!(dispatch_settings(&Configuration::default()).mode, DispatchMode::BestFit);
        assert_eq!(
            mode("kueue.x-k8s.io/multikueue-dispatcher-all-at-once"),
            DispatchMode::AllAtOnce
        );
        let incremental = DispatchMode::Incremental { step: 3, round: 300_000 };
        assert_eq!(mode("kueue.x-k8s.io/multikueue-dispatcher-incremental"), incremental);
        assert_eq!(mode("example.com/mine"), DispatchMode::External);
        assert_eq!(dispatch_settings(&Configuration::default()).worker_lost_timeout, 900_000);
    }

    #[test]
    fn feature_gates_configure_the_incremental_dispatcher() {
        let file = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n\
                    multiKueue: {dispatcherName: kueue.x-k8s.io/multikueue-dispatcher-incremental, \
                    incrementalDispatcherConfig: {stepSize: 7}}\n";
        let settings = |gates: &str| {
            let config = switchyard_config::load_with_gates(file, gates).unwrap();
            assert_eq!(config.ignored(), []);
            let settings = dispatch_settings(&config);
            (settings.mode, settings.nominate_by_name)
        };
        let of = |step| DispatchMode::Incremental { step, round: 300_000 };
        assert_eq!(settings(""), (of(7), false));
        assert_eq!(settings("MultiKueueIncrementalDispatcherConfig=false"), (of(3), false));
        assert_eq!(
            settings("MultiKueueIncrementalDispatcherRespectConfigOrder=false"),
            (of(7), true)
        );
    }

    #[test]
    fn preemption_timeout_needs_feature_and_several_clusters() {
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
