//! A long run: random life on a hub and two workers, with the auditor beside it.
//!
//! A seed gives the plan. Jobs of all kinds that need no operator are made, changed, moved, evicted and deleted, their pods end,
//! queues are stopped and changed, clusters drained, programs killed. At the end everything is restored, all that ends by itself
//! has to end, the rest is deleted, and nothing may be used or left.

mod action;
mod changes;
mod empty;
mod log;
mod perform;
mod plan;
mod subject;
mod watch;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use switchyard_e2e::fleet::Fleet;
use switchyard_flags::life::Args;
use tokio::time::{Instant, sleep_until};

use action::Action;
use log::Log;
use perform::{Outcome, perform};
use plan::{LifePlan, Step};
use watch::Watch;

/// Where the jobs are, on all clusters.
const NAMESPACE: &str = "life";
/// Longer than anything here takes on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// Actions under way at once. Later ones wait.
const AT_ONCE: usize = 8;

/// Runs it.
///
/// # Errors
/// Faults: findings of the auditor, jobs that do not end, objects that are left.
pub async fn run(args: &Args) -> anyhow::Result<()> {
    let fresh =
        || u64::try_from(jiff::Timestamp::now().as_microsecond()).unwrap_or_default() % 1_000_003;
    let seed = args.seed.unwrap_or_else(fresh);
    println!("again: cargo xtask life --seed {seed} --minutes {}", args.minutes);
    let fleet = world::start().await?;
    let log = Log::create(fleet.environment().dir().join("life.log"))?;
    println!("each action is a line of {}", log.path().display());
    let changes = Log::create(fleet.environment().dir().join("changes.log"))?;
    let life = Life { fleet, log, watch: Watch::default() };
    life.fleet.environment().keep_logs();
    let before = empty::inventory(&life.fleet).await?;
    let lived = async {
        let counts = life.live(seed, Duration::from_secs(args.minutes * 60)).await?;
        anyhow::Ok((counts, life.end(&before).await))
    };
    let (counts, faults) = tokio::select! {
        ended = lived => ended?,
        never = changes::follow(&life.fleet, &changes) => match never {},
        never = life.watch.follow(&life.fleet, &life.log) => match never {},
    };
    println!("{}", table(&counts));
    let seen = life.watch.seen();
    let faults: Vec<String> = seen.lasting.iter().cloned().chain(faults).collect();
    println!("seed {seed}, {} audits, {} findings, {} faults", seen.audits, seen.new, faults.len());
    if faults.is_empty() {
        return Ok(());
    }
    bail!("seed {seed}:\n{}", faults.join("\n"))
}

/// By name of action: done, idle, refused.
type Counts = BTreeMap<&'static str, [u32; 3]>;

/// A run.
struct Life {
    fleet: Fleet,
    log: Log,
    watch: Watch,
}

impl Life {
    /// Plays the plan for so long.
    async fn live(&self, seed: u64, lasts: Duration) -> anyhow::Result<Counts> {
        let begun = Instant::now();
        let (mut under_way, mut counts, mut minute) = (FuturesUnordered::new(), Counts::new(), 1);
        for (Step { at, action }, number) in
            LifePlan::new(seed).take_while(|step| step.at < lasts).zip(1_u32..)
        {
            let time = sleep_until(begun + at);
            tokio::pin!(time);
            loop {
                tokio::select! {
                    Some(ended) = under_way.next() => count(&mut counts, &ended),
                    () = &mut time, if under_way.len() < AT_ONCE => break,
                }
            }
            if at >= Duration::from_secs(minute * 60) {
                self.fleet.environment().etcd().check().context("the control planes are gone")?;
                self.progress(minute, number, &counts);
                minute = at.as_secs() / 60 + 1;
            }
            under_way.push(async move { (action.name(), self.play(number, &action).await) });
        }
        while let Some(ended) = under_way.next().await {
            count(&mut counts, &ended);
        }
        Ok(counts)
    }

    fn progress(&self, minute: u64, number: u32, counts: &Counts) {
        let (seen, done) = (self.watch.seen(), counts.values().map(|[done, ..]| done).sum::<u32>());
        let (audits, lasting) = (seen.audits, seen.lasting.len());
        self.log.tell(&format!(
            "minute {minute}: {number} actions, {done} done, {audits} audits, {lasting} findings that last"
        ));
    }

    /// Does an action, with a line in the log before and after.
    async fn play(&self, number: u32, action: &Action) -> Outcome {
        let quota =
            if let Action::SetQuota { cluster, .. } = action { Some(*cluster) } else { None };
        if let Some(cluster) = quota {
            self.watch.lowered(cluster);
        }
        let begun = Instant::now();
        self.log.line(&format!("#{number} {action}"));
        let outcome = perform(&self.fleet, action).await;
        let took = begun.elapsed().as_secs_f64();
        self.log.line(&match &outcome {
            Outcome::Done(text) => format!("#{number} done after {took:.1} s {text}"),
            Outcome::Idle => format!("#{number} met nothing"),
            Outcome::Refused(why) => format!("#{number} refused after {took:.1} s: {why}"),
        });
        if let Some(cluster) = quota {
            self.watch.lowered(cluster);
        }
        outcome
    }

    /// Restores everything, lets end what ends, deletes the rest, and gives what is wrong then.
    async fn end(&self, before: &empty::Inventory) -> Vec<String> {
        let (fleet, log) = (&self.fleet, &self.log);
        let mut faults = Vec::new();
        let mut judge = |what: &str, result: anyhow::Result<()>| {
            let text = result
                .as_ref()
                .map_or_else(|error| format!("{what}: {error:#}"), |()| format!("{what}: yes"));
            log.tell(&text);
            faults.extend(result.err().map(|_| text));
        };
        for (action, number) in plan::restore().iter().zip(1_000_000..) {
            if let Outcome::Refused(why) = self.play(number, action).await {
                judge("everything is restored", Err(anyhow!("{action}: {why}")));
            }
        }
        let ended = empty::all_end(fleet).await;
        if ended.is_err() {
            empty::keep(fleet, log, "waiting").await;
        }
        judge("all jobs end", ended);
        let left = empty::none_left(fleet).await;
        if left.is_err() {
            empty::keep(fleet, log, "left").await;
        }
        judge("nothing is left of deleted jobs", left);
        judge("nothing is used", empty::nothing_used(fleet).await);
        let after = empty::inventory(fleet).await;
        let differs = after.map(|after| empty::difference(before, &after));
        let same = differs
            .and_then(|all| if all.is_empty() { Ok(()) } else { Err(anyhow!(all.join("; "))) });
        judge("all else is as before", same);
        judge("queues can be deleted", empty::queues_go(fleet).await);
        faults
    }
}

fn count(counts: &mut Counts, (name, outcome): &(&'static str, Outcome)) {
    let index = match outcome {
        Outcome::Done(_) => 0,
        Outcome::Idle => 1,
        Outcome::Refused(_) => 2,
    };
    if let Some(count) = counts.entry(name).or_default().get_mut(index) {
        *count += 1;
    }
}

/// The actions, a line a kind.
fn table(counts: &Counts) -> String {
    let mut text = format!("{:<18} {:>6} {:>6} {:>8}", "action", "done", "idle", "refused");
    for (name, [done, idle, refused]) in counts {
        text += &format!("\n{name:<18} {done:>6} {idle:>6} {refused:>8}");
    }
    text
}
