//! `switchyard authority`: the hub's certificate authority, and its replacement.

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde::Serialize;
use switchyard_hub::pki::{Authority, ca, store};

use crate::Output;

/// `switchyard authority`.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Who signs agents' certificates, who is trusted beside, and when the next step of a replacement comes.
    Status(Args),
    /// Replace it by a new one, in steps that the hub takes by itself: agents go on. See docs/certificates.md.
    Replace(Args),
    /// Say that the hub's store was lost, or restored from a backup, before the hub is started: what clusters have from before
    /// waits for its jobs. See docs/recovery.md.
    Recover(Recover),
}

/// Arguments of `recover`.
#[derive(clap::Args, Debug)]
pub struct Recover {
    /// Where, and how to print.
    #[command(flatten)]
    pub args: Args,
    /// The hub's id, where its authority is lost as well: the value of the label switchyard.dev/hub-id of any object that it
    /// made on a cluster. A new authority is made for it.
    #[arg(long, value_name = "ID")]
    pub hub_id: Option<String>,
}

/// What the hub is from now on.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Recovered {
    /// Its id.
    pub hub_id: String,
    /// It remembers nothing from before.
    pub memory_since: Timestamp,
    /// It has a new authority: each agent has to enrol again.
    pub new_authority: bool,
}

/// Arguments of all.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The namespace the hub runs in.
    #[arg(long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub hub_namespace: String,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// What is printed.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Shown {
    /// SHA-256 of the certificate that signs, hex: what `--hub-ca-sha256` takes.
    pub signs: String,
    /// The next signer, while one is being made known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// All that are trusted.
    pub trusted: Vec<String>,
    /// When the hub takes the next step; none if nothing is being replaced, or the hub has not seen the next signer yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<Timestamp>,
}

impl Shown {
    fn of(authority: &Authority) -> Self {
        Self {
            signs: authority.signer().pin(),
            next: authority.next().map(switchyard_hub::pki::Ca::pin),
            trusted: authority.trusted().iter().map(ca::pin).collect(),
            next_step: authority.next_step(),
        }
    }
}

/// Does it.
///
/// # Errors
/// When the Secret cannot be read or written, or the authority is being replaced already.
pub async fn run(client: kube::Client, command: &Command) -> anyhow::Result<String> {
    let (args, replace) = match command {
        Command::Recover(recover) => return self::recover(client, recover).await,
        Command::Status(args) => (args, false),
        Command::Replace(args) => (args, true),
    };
    let secrets: Api<Secret> = Api::namespaced(client, &args.hub_namespace);
    let now = Timestamp::now();
    let authority = if replace {
        store::replace(&secrets, now).await
    } else {
        store::look(&secrets, false, now).await
    };
    let authority = authority
        .with_context(|| format!("the hub's authority, in namespace {}", args.hub_namespace))?;
    args.output.render(&Shown::of(&authority), text)
}

async fn recover(client: kube::Client, recover: &Recover) -> anyhow::Result<String> {
    let Recover { args, hub_id } = recover;
    let secrets: Api<Secret> = Api::namespaced(client, &args.hub_namespace);
    let now = Timestamp::now();
    let memory_since = now.round(jiff::Unit::Second).unwrap_or(now);
    let (hub_id, new_authority) = store::recover(&secrets, hub_id.as_deref(), memory_since).await?;
    args.output.render(&Recovered { hub_id, memory_since, new_authority }, recovered)
}

fn recovered(it: &Recovered) -> String {
    let authority =
        if it.new_authority { "Its authority is new: enrol each agent again.\n" } else { "" };
    let Recovered { hub_id, memory_since, .. } = it;
    format!("Hub {hub_id} remembers nothing from before {memory_since}. Start it now.\n{authority}")
}

/// What a person reads.
fn text(shown: &Shown) -> String {
    let mut lines = vec![format!("signs    {}", shown.signs)];
    let beside = shown.trusted.iter().filter(|trusted| **trusted != shown.signs);
    lines.extend(beside.map(|trusted| {
        let role = if shown.next.as_ref() == Some(trusted) {
            "will sign"
        } else {
            "has signed, and is trusted still"
        };
        format!("beside   {trusted} ({role})")
    }));
    if shown.next.is_some() && shown.next_step.is_none() {
        lines.push("the hub has not seen the next one yet: it looks every half minute".to_owned());
    }
    if let Some(at) = shown.next_step {
        let what = if shown.next.is_some() {
            "the next one signs"
        } else {
            "the old one is trusted no longer"
        };
        lines.push(format!("{}: {what}", at.round(jiff::Unit::Second).unwrap_or(at)));
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(next: Option<&str>, trusted: &[&str]) -> Shown {
        Shown {
            signs: "aa".into(),
            next: next.map(str::to_owned),
            trusted: trusted.iter().map(|pin| (*pin).to_owned()).collect(),
            next_step: (trusted.len() > 1).then(|| "2026-11-23T01:00:00.5Z".parse().unwrap()),
        }
    }

    #[test]
    fn a_hub_that_has_forgotten_is_told_who_it_is() {
        let memory_since = "2026-11-23T01:00:00Z".parse().unwrap();
        let it = Recovered { hub_id: "h".into(), memory_since, new_authority: true };
        insta::assert_snapshot!(recovered(&it), @"
        Hub h remembers nothing from before 2026-11-23T01:00:00Z. Start it now.
        Its authority is new: enrol each agent again.
        ");
    }

    #[test]
    fn each_step_is_told() {
        insta::assert_snapshot!(text(&shown(None, &["aa"])), @"signs    aa");
        insta::assert_snapshot!(text(&Shown { next_step: None, ..shown(Some("bb"), &["aa", "bb"]) }), @"
        signs    aa
        beside   bb (will sign)
        the hub has not seen the next one yet: it looks every half minute
        ");
        insta::assert_snapshot!(text(&shown(Some("bb"), &["aa", "bb"])), @"
        signs    aa
        beside   bb (will sign)
        2026-11-23T01:00:01Z: the next one signs
        ");
        insta::assert_snapshot!(text(&shown(None, &["aa", "bb"])), @"
        signs    aa
        beside   bb (has signed, and is trusted still)
        2026-11-23T01:00:01Z: the old one is trusted no longer
        ");
    }
}
