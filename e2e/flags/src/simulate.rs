//! `cargo xtask simulate`.

use clap::ValueEnum;

/// A way to break the code on purpose: a switch in what surrounds the production machines. A law must find each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mutation {
    /// A cluster gets `RUN` before its attempt is written to the API.
    RunBeforeWritten,
    /// An end is acknowledged before it is written.
    AckBeforeWritten,
    /// Clusters get no tombstones.
    ForgetTombstones,
    /// Agents obey whatever epoch, and whatever session.
    IgnoreEpoch,
    /// A cluster that connects counts as known before it has told its inventory.
    NoInventory,
    /// Quota goes back at eviction, whatever runs.
    ReleaseAtEviction,
    /// The attempt is not written with the cluster.
    ForgetAttempt,
    /// The hub waits for the slowest cluster before it says anything to another.
    WaitForAll,
    /// Jobs are made without the finalizer that keeps their end.
    NoFinalizer,
    /// Deletions go by name, not by uid.
    DeleteByName,
    /// Agents do not get the fence that the hub relies upon.
    NoFence,
    /// The hub does not wait until the fence must have done its work.
    GiveUpEarly,
    /// Jobs that are to stay with a lost cluster are given up.
    GiveUpHeld,
    /// Lost work is given up, however much is lost at once.
    NoBreaker,
    /// A hub whose store was lost does not know that it has forgotten anything.
    ForgetMemory,
    /// To a hub whose store was lost, clusters that have not spoken are as good as those that have nothing.
    CountSilent,
    /// A restarted hub does not read which agents could not act.
    ForgetUnable,
    /// An agent's report about itself is forgotten with its session, unless it was written by then.
    ForgetWord,
    /// Clusters do not get a changed priority.
    KeepPriority,
    /// Clusters may preempt as soon as they ask for it.
    OpenAll,
    /// Workers do not say that it was a fence that stopped a job.
    HideWhy,
    /// Writes on the hub do not carry the version that was read.
    WriteBlind,
    /// The dispatcher learns of a loss although the session of the cluster stands.
    SayLost,
    /// Jobs that an agent deletes are gone before their pods.
    DeleteFirst,
    /// The moves of a job without a ready pod are not counted in the API.
    ForgetMoves,
    /// Agents report every job as one without a ready pod.
    UnreadyForEver,
    /// Clusters do not get the flavors that the hub charged.
    DropPins,
}

impl Mutation {
    /// As the command line calls it.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Flags of the simulation.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// How many seeds. 1000, or with --seed only that one.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub seeds: Option<u64>,
    /// The first of them.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Begin seeds for so many seconds, as many as there is time for.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub seconds: Option<u64>,
    /// Break the code in this way.
    #[arg(long, value_enum)]
    pub mutate: Option<Mutation>,
    /// Print how often each fault and each excuse of a law was reached.
    #[arg(long)]
    pub reached: bool,
    /// Run all of them whatever happens, and print one line for each failure.
    #[arg(long)]
    pub all: bool,
    /// Print a failure as it is, not the shortest like it.
    #[arg(long)]
    pub whole: bool,
}
