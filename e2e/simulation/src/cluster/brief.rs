//! One-line texts of messages, for the trace.

use switchyard_proto::v1::{HubMessage, agent_message, hub_message};

/// An agent's message.
pub(super) fn brief_up(kind: &agent_message::Kind) -> String {
    match kind {
        agent_message::Kind::Observed(observed) => {
            let each: Vec<String> = observed
                .observations
                .iter()
                .map(|it| format!("{}/{} {:?}", it.workload_uid, it.attempt, it.state()))
                .collect();
            let inventory = if observed.inventory { " inventory" } else { "" };
            format!("#{}{inventory} [{}]", observed.sequence, each.join(", "))
        }
        agent_message::Kind::Hello(hello) => {
            format!("Hello epoch {} revision {}", hello.last_epoch, hello.last_revision)
        }
        agent_message::Kind::Capacity(_) => "Capacity".to_owned(),
        agent_message::Kind::Digest(_) => "Digest".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A hub's message.
pub(super) fn brief_down(message: &HubMessage) -> String {
    use hub_message::Kind;
    let what = match &message.kind {
        Some(Kind::Desired(desired)) => {
            let each: Vec<String> = desired
                .assignments
                .iter()
                .map(|it| format!("{}/{} {:?}", it.workload_uid, it.attempt, it.phase()))
                .collect();
            let snapshot = if desired.snapshot { " snapshot" } else { "" };
            format!("desired{snapshot} [{}]", each.join(", "))
        }
        Some(Kind::Welcome(welcome)) => {
            format!("Welcome to {} snapshot {}", welcome.session_id, welcome.snapshot)
        }
        other => format!("{other:?}"),
    };
    format!("epoch {} {what}", message.epoch)
}
