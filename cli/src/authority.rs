//! `switchyard ca`: the hub's certificate authority, and its replacement.

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde::Serialize;
use switchyard_hub_pki::{Authority, ca, store};

use crate::{Output, confirm};

/// `switchyard ca`.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show the CA that signs agents' certificates, all trusted CAs, and the time of the next rotation step
    #[command(after_help = "Examples:\n  switchyard ca status")]
    Status(Args),
    /// Rotate the authority, in steps that the hub takes by itself; agents stay connected
    ///
    /// See docs/certificates.md.
    #[command(
        name = "rotate",
        alias = "replace",
        after_help = "Examples:\n  switchyard ca rotate --dry-run\n  switchyard ca rotate"
    )]
    Replace(Replace),
}

/// The command of earlier versions.
#[derive(clap::Subcommand, Debug)]
pub enum OldCommand {
    /// As `ca`.
    #[command(flatten)]
    Ca(Command),
    /// Say that the hub's store was lost, or restored from a backup, before the hub is started: what clusters have from before
    /// waits for its jobs. See docs/recovery.md.
    Recover(Recover),
}

/// Arguments of `rotate`.
#[derive(clap::Args, Debug)]
pub struct Replace {
    /// The common arguments.
    #[command(flatten)]
    pub args: Args,
    /// Print the authority as it is and whether a rotation can begin, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// Arguments of `recover`.
#[derive(clap::Args, Debug)]
pub struct Recover {
    #[command(flatten)]
    pub args: Args,
    /// The hub's ID, if its CA is lost too: the label switchyard.dev/hub-id of any object that the
    /// hub created on a cluster. The hub gets a new CA.
    #[arg(long, value_name = "ID")]
    pub hub_id: Option<String>,
    /// Confirm that the hub's store was lost or restored. A hub that forgets a store that is whole
    /// runs jobs twice.
    #[arg(long)]
    pub yes: bool,
    /// Print what would happen, and change nothing.
    #[arg(long)]
    pub dry_run: bool,
}

/// The hub after `recover`.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Recovered {
    pub hub_id: String,
    /// The hub treats copies from before this time as unknown to it.
    pub memory_since: Timestamp,
    /// Whether the CA is new, so that each agent must enrol again.
    pub new_authority: bool,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

#[derive(clap::Args, Debug)]
pub struct Args {
    /// The namespace of the hub.
    #[arg(long, default_value = crate::DEFAULT_HUB_NAMESPACE)]
    pub hub_namespace: String,
    /// Output format.
    #[arg(short, long, value_enum, default_value_t)]
    pub output: Output,
}

/// The state of the CA.
#[derive(Serialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AuthorityStatus {
    /// SHA-256 of the signing certificate in hex, as for `--hub-ca-sha256`.
    pub signs: String,
    /// The next signer, until it takes over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// SHA-256 of each trusted certificate.
    pub trusted: Vec<String>,
    /// Time of the next replacement step. `None` if there is none, or if the hub has not seen the
    /// next signer yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_step: Option<Timestamp>,
    /// Nothing was changed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl AuthorityStatus {
    fn of(authority: &Authority) -> Self {
        Self {
            signs: authority.signer().pin(),
            next: authority.next().map(switchyard_hub_pki::Ca::pin),
            trusted: authority.trusted().iter().map(ca::pin).collect(),
            next_step: authority.next_step(),
            dry_run: false,
        }
    }
}

/// Runs a subcommand.
///
/// # Errors
/// If the Secret cannot be read or written, or if a replacement is in progress already.
pub async fn run(client: kube::Client, command: &Command) -> anyhow::Result<String> {
    let (args, replace) = match command {
        Command::Status(args) => (args, false),
        Command::Replace(Replace { args, dry_run }) => (args, !dry_run),
    };
    let secrets: Api<Secret> = Api::namespaced(client, &args.hub_namespace);
    let now = Timestamp::now();
    let authority = if replace {
        store::replace(&secrets, now).await
    } else {
        store::load(&secrets, false, now).await
    };
    let authority = authority
        .with_context(|| format!("the hub's authority, in namespace {}", args.hub_namespace))?;
    let dry_run = matches!(command, Command::Replace(Replace { dry_run: true, .. }));
    let status = AuthorityStatus { dry_run, ..AuthorityStatus::of(&authority) };
    args.output.render(&status, render_text)
}

/// Prepares a hub that has lost its memory.
///
/// # Errors
/// When the Secret cannot be read or written, or without `--yes`.
pub async fn recover(client: kube::Client, recover: &Recover) -> anyhow::Result<String> {
    let Recover { args, hub_id, yes, dry_run } = recover;
    let secrets: Api<Secret> = Api::namespaced(client, &args.hub_namespace);
    let now = Timestamp::now();
    let memory_since = now.round(jiff::Unit::Second).unwrap_or(now);
    let is_planned = *dry_run || !yes;
    let (hub_id, new_authority) = match is_planned {
        true => store::recoverable(&secrets, hub_id.as_deref()).await?,
        false => store::recover(&secrets, hub_id.as_deref(), memory_since).await?,
    };
    let done = Recovered { hub_id, memory_since, new_authority, dry_run: is_planned };
    if is_planned && !dry_run {
        let condition = "If its store was lost or restored, and no hub runs";
        return Err(confirm::needed(&recovered(&done), condition));
    }
    args.output.render(&done, recovered)
}

fn recovered(it: &Recovered) -> String {
    let Recovered { hub_id, memory_since, .. } = it;
    if it.dry_run {
        let authority = match it.new_authority {
            true => " It would get a new authority, and each agent would have to enrol again.",
            false => "",
        };
        return format!(
            "Hub {hub_id} would remember nothing from before {memory_since}.{authority} Nothing is changed.\n"
        );
    }
    let authority =
        if it.new_authority { "Its authority is new: enrol each agent again.\n" } else { "" };
    format!("Hub {hub_id} remembers nothing from before {memory_since}. Start it now.\n{authority}")
}

fn render_text(shown: &AuthorityStatus) -> String {
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
    if shown.dry_run {
        lines.push(match shown.trusted.len() {
            0 | 1 => "a rotation would begin with a new authority. Nothing is changed.".to_owned(),
            _ => {
                "a rotation is in progress, and no other can begin. Nothing is changed.".to_owned()
            }
        });
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(next: Option<&str>, trusted: &[&str]) -> AuthorityStatus {
        AuthorityStatus {
            signs: "aa".into(),
            next: next.map(str::to_owned),
            trusted: trusted.iter().map(|pin| (*pin).to_owned()).collect(),
            next_step: (trusted.len() > 1).then(|| "2026-11-23T01:00:00.5Z".parse().unwrap()),
            dry_run: false,
        }
    }

    #[test]
    fn recover_prints_id_and_new_authority() {
        let memory_since = "2026-11-23T01:00:00Z".parse().unwrap();
        let it =
            Recovered { hub_id: "h".into(), memory_since, new_authority: true, dry_run: false };
        insta::assert_snapshot!(recovered(&it), @"
        Hub h remembers nothing from before 2026-11-23T01:00:00Z. Start it now.
        Its authority is new: enrol each agent again.
        ");
        insta::assert_snapshot!(recovered(&Recovered { dry_run: true, ..it }), @"
        Hub h would remember nothing from before 2026-11-23T01:00:00Z. It would get a new authority, and each agent would have to enrol again. Nothing is changed.
        ");
    }

    #[test]
    fn dry_run_tells_whether_a_rotation_can_begin() {
        let planned = |trusted: &[&str]| {
            render_text(&AuthorityStatus { dry_run: true, ..shown(None, trusted) })
        };
        assert!(
            planned(&["aa"])
                .ends_with("a rotation would begin with a new authority. Nothing is changed.\n")
        );
        assert!(planned(&["aa", "bb"]).contains("a rotation is in progress"));
    }

    #[test]
    fn status_shows_each_replacement_step() {
        insta::assert_snapshot!(render_text(&shown(None, &["aa"])), @"signs    aa");
        insta::assert_snapshot!(render_text(&AuthorityStatus { next_step: None, ..shown(Some("bb"), &["aa", "bb"]) }), @"
        signs    aa
        beside   bb (will sign)
        the hub has not seen the next one yet: it looks every half minute
        ");
        insta::assert_snapshot!(render_text(&shown(Some("bb"), &["aa", "bb"])), @"
        signs    aa
        beside   bb (will sign)
        2026-11-23T01:00:01Z: the next one signs
        ");
        insta::assert_snapshot!(render_text(&shown(None, &["aa", "bb"])), @"
        signs    aa
        beside   bb (has signed, and is trusted still)
        2026-11-23T01:00:01Z: the old one is trusted no longer
        ");
    }
}
