//! Creations that fail one after the other, for a cause that may pass: the hub is told after the second.

use switchyard_proto::trouble;
use switchyard_proto::v1::JobTrouble;

use super::entry::Entry;
use super::model::{Kind, Trouble};

/// So many failures in a row are told.
const TOLD_FROM: u32 = 2;

/// How often the creation of an attempt's object has failed in a row.
#[derive(Debug)]
pub(super) struct Failing {
    pub(super) kind: Kind,
    attempt: u64,
    count: u32,
    /// The newest error.
    message: String,
}

impl Failing {
    fn text(&self) -> String {
        let object = match self.kind {
            Kind::Workload => "Workload",
            Kind::Job => "job",
        };
        format!("the {object} could not be created, and it is tried again: {}", self.message)
    }
}

impl Entry {
    /// A creation failed, and is tried again.
    pub(super) fn creation_failed(&mut self, kind: Kind, attempt: u64, why: &str) {
        let known =
            self.failing.take().filter(|known| known.kind == kind && known.attempt == attempt);
        let count = known.map_or(0, |known| known.count).saturating_add(1);
        let failing = Failing { kind, attempt, count, message: trouble::single_line(why) };
        // A cluster without the Workload can be told apart from one that has not answered.
        if kind == Kind::Workload && count >= TOLD_FROM {
            let waits = Trouble::waiting(trouble::CREATION_FAILED, failing.text());
            self.trouble = Some((attempt, kind, waits));
        }
        self.failing = Some(failing);
    }

    /// The troubles that keep the job of an attempt from starting.
    pub(super) fn troubles_of(&self, attempt: u64) -> Vec<JobTrouble> {
        let told = |failing: &&Failing| failing.attempt == attempt && failing.count >= TOLD_FROM;
        let failing = self.failing.as_ref().filter(told).map(|failing| JobTrouble {
            reason: trouble::CREATION_FAILED.to_owned(),
            message: trouble::single_line(&failing.text()),
            count: failing.count,
            since: None,
        });
        let found = self
            .troubles
            .iter()
            .filter(|(of, _)| *of == attempt)
            .flat_map(|(_, troubles)| troubles.clone());
        failing.into_iter().chain(found).take(trouble::MAX_TROUBLES).collect()
    }
}
