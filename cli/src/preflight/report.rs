//! The report, as text and JSON.

use serde::Serialize;

/// Names of a finding in text. JSON has all.
const SHOWN: usize = 5;

/// The effect of a takeover on an object, a field or a gate.
#[derive(Serialize, Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub enum Effect {
    /// Jobs would suffer. The takeover should not begin.
    Refused,
    /// It has no effect any more; jobs go on.
    NotSupported,
    /// It behaves in another way.
    Differs,
    Same,
}

impl Effect {
    fn heading(self) -> &'static str {
        match self {
            Self::Refused => "Refused: jobs would suffer",
            Self::NotSupported => "Not supported: without effect afterwards",
            Self::Differs => "Differs",
            Self::Same => "Same",
        }
    }
}

/// One finding, of one or several objects.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    pub effect: Effect,
    /// A kind, `configuration`, `feature gate`, `Kueue`, `Kubernetes` or `worker`.
    pub subject: String,
    /// The objects, as `namespace/name`, or the feature gates.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub objects: Vec<String>,
    /// Number of objects; 0 where it is about none.
    #[serde(skip_serializing_if = "is_zero")]
    pub count: usize,
    /// The field, or the gate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    pub message: String,
    /// Advice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mend: Option<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Finding {
    /// A finding that is about no object.
    pub(super) fn new(effect: Effect, subject: &str, message: impl Into<String>) -> Self {
        Self {
            effect,
            subject: subject.to_owned(),
            objects: Vec::new(),
            count: 0,
            field: None,
            message: message.into(),
            mend: None,
        }
    }

    pub(super) fn field(self, field: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..self }
    }

    pub(super) fn mend(self, mend: impl Into<String>) -> Self {
        Self { mend: Some(mend.into()), ..self }
    }

    pub(super) fn object(self, name: impl Into<String>) -> Self {
        Self { objects: vec![name.into()], count: 1, ..self }
    }

    pub(super) fn objects(self, names: Vec<String>) -> Self {
        Self { count: names.len(), objects: names, ..self }
    }

    fn text(&self) -> String {
        let field = self.field.as_ref().map(|field| format!(" {field}")).unwrap_or_default();
        let shown = &self.objects[..self.objects.len().min(SHOWN)];
        let names = shown.join(", ");
        let objects = match (self.count, self.count.saturating_sub(shown.len())) {
            (0, _) => String::new(),
            (_, 0) => format!(" ({names})"),
            (count, _) if names.is_empty() => format!(" ({count})"),
            (_, more) => format!(" ({names} and {more} more)"),
        };
        let mut out = format!("  {}{field}{objects}: {}\n", self.subject, self.message);
        if let Some(mend) = &self.mend {
            out.push_str(&format!("      mend: {mend}\n"));
        }
        out
    }
}

/// A step of the takeover.
#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    pub name: String,
    /// The effect on jobs meanwhile.
    pub jobs: String,
    /// The way back from after the step.
    pub abort: String,
    pub minutes: usize,
    /// Whether no controller queues after the step.
    pub is_gap: bool,
    /// Section of the guide.
    pub link: String,
}

#[derive(Serialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Version of this program.
    pub version: &'static str,
    /// Version of Kueue; none if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kueue: Option<String>,
    /// `hub` for a MultiKueue manager, else `single`.
    pub mode: &'static str,
    /// Whether a finding has the effect `refused`.
    pub is_refused: bool,
    /// Whether the cluster and all workers that answer were read whole.
    pub is_complete: bool,
    /// Unfinished Workloads that hold quota.
    pub running: usize,
    /// Unfinished Workloads that wait.
    pub waiting: usize,
    /// The gravest first.
    pub findings: Vec<Finding>,
    pub steps: Vec<Step>,
}

impl Report {
    #[must_use]
    pub fn text(&self) -> String {
        let kueue = self.kueue.as_deref().unwrap_or("of unknown version");
        let mut out = format!(
            "Kueue {kueue} to Switchyard {} in mode {}. Jobs with quota: {}; waiting: {}.\n",
            self.version, self.mode, self.running, self.waiting
        );
        let mut heading = None;
        for finding in &self.findings {
            if heading.replace(finding.effect) != Some(finding.effect) {
                out.push_str(&format!("\n{}\n", finding.effect.heading()));
            }
            out.push_str(&finding.text());
        }
        let total: usize = self.steps.iter().map(|step| step.minutes).sum();
        let gap: usize =
            self.steps.iter().filter(|step| step.is_gap).map(|step| step.minutes).sum();
        out.push_str(&format!(
            "\nSteps, about {total} minutes; no controller queues for about {gap} of them\n"
        ));
        for (at, step) in self.steps.iter().enumerate() {
            out.push_str(&format!(
                "  {}. {} (about {} min)\n       jobs: {}\n       abort afterwards: {}\n       see {}\n",
                at + 1,
                step.name,
                step.minutes,
                step.jobs,
                step.abort,
                step.link
            ));
        }
        let refused = self.findings.iter().filter(|it| it.effect == Effect::Refused).count();
        out.push_str(&match refused {
            0 if !self.is_complete => {
                "\nNothing that was read stands in the way, but not everything was read.\n"
                    .to_owned()
            }
            0 => "\nNothing stands in the way.\n".to_owned(),
            refused => format!("\nDo not begin yet: mend the {refused} refused findings first.\n"),
        });
        out
    }
}
