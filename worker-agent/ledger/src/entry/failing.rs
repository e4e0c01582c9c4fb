//! Repeated failures to create an object, for causes that may pass. The agent reports them from the
//! second failure on.

use switchyard_proto::trouble;
use switchyard_proto::v1::JobTrouble;

use super::Entry;
use crate::actions::Rejection;
use crate::objects::ObjectKind;

/// The number of failures in a row from which they are reported.
const REPORTED_FROM: u32 = 2;

/// Failures in a row to create one object of an attempt.
#[derive(Debug)]
pub(crate) struct Failing {
    pub(crate) kind: ObjectKind,
    attempt: u64,
    count: u32,
    /// The newest error.
    message: String,
}

impl Failing {
    fn text(&self) -> String {
        let object = match self.kind {
            ObjectKind::Workload => "Workload",
            ObjectKind::Job => "job",
        };
        format!("the {object} could not be created, and it is tried again: {}", self.message)
    }
}

impl Entry {
    /// Counts a failed creation that will be tried again.
    pub(crate) fn creation_failed(&mut self, kind: ObjectKind, attempt: u64, why: &str) {
        let known =
            self.failing.take().filter(|known| known.kind == kind && known.attempt == attempt);
        let count = known.map_or(0, |known| known.count).saturating_add(1);
        let failing = Failing { kind, attempt, count, message: trouble::single_line(why) };
        // With a reported failure, the hub can tell this cluster from one that has not answered.
        if kind == ObjectKind::Workload && count >= REPORTED_FROM {
            let waits = Rejection::waiting(trouble::CREATION_FAILED, failing.text());
            self.rejection = Some((attempt, kind, waits));
        }
        self.failing = Some(failing);
    }

    /// All known causes that keep an attempt's job from starting.
    pub(crate) fn job_troubles_of(&self, attempt: u64) -> Vec<JobTrouble> {
        let is_reported =
            |failing: &&Failing| failing.attempt == attempt && failing.count >= REPORTED_FROM;
        let failing = self.failing.as_ref().filter(is_reported).map(|failing| JobTrouble {
            reason: trouble::CREATION_FAILED.to_owned(),
            message: trouble::single_line(&failing.text()),
            count: failing.count,
            since: None,
        });
        let found = self
            .job_troubles
            .iter()
            .filter(|(of, _)| *of == attempt)
            .flat_map(|(_, troubles)| troubles.clone());
        failing.into_iter().chain(found).take(trouble::MAX_TROUBLES).collect()
    }
}
