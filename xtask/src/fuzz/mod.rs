//! `cargo xtask fuzz-decisions`: compares the engine's decisions with those of Kueue's own scheduler on random scenarios.

mod engine;
mod generator;
mod judge;
mod moves;
mod named;
mod oracle;
mod own;
mod render;
mod report;
mod shrink;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use switchyard_parts::paths;

use crate::run;
use judge::{Judge, Judgement};
use oracle::Oracle;
use report::Counts;

/// Scenarios of a batch; progress is printed after each.
const BATCH: usize = 100;

/// Repetitions of a differing scenario, because Kueue breaks some ties at random.
const ASKED_AGAIN: usize = 10;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many scenarios, over all modes.
    #[arg(long, default_value_t = 240)]
    scenarios: usize,
    /// First seed of the generators. The same seed and number give the same scenarios. Default: the time.
    #[arg(long)]
    seed: Option<u64>,
    /// The directory with a Kueue oracle (a Go test) and scenario-gen.py, for all modes except `own-*`. Default:
    /// `../shared/oracle` beside the checkout.
    #[arg(long)]
    oracle: Option<PathBuf>,
    /// Take the scenarios of this file instead of generating some. Can be repeated.
    #[arg(long)]
    file: Vec<PathBuf>,
    /// Only modes whose name contains this.
    #[arg(long)]
    mode: Option<String>,
    /// How many of the differing scenarios are shrunk. The others are saved unchanged.
    #[arg(long, default_value_t = 5)]
    shrink: usize,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let oracle = args.oracle.clone().unwrap_or_else(paths::oracle);
    let seed = args.seed.unwrap_or_else(crate::test::first_seed);
    let wanted =
        |mode: &&generator::Mode| args.mode.as_ref().is_none_or(|part| mode.name.contains(part));
    let modes: Vec<_> = generator::MODES.iter().filter(wanted).collect();
    if modes.is_empty() {
        let names: Vec<_> = generator::MODES.iter().map(|mode| mode.name).collect();
        bail!("no mode has that in its name; the modes are {}", names.join(", "));
    }
    if args.file.is_empty() {
        println!("seed {seed}: --scenarios {} --seed {seed} repeats this run", args.scenarios);
    }
    let results = run::root().join("target/fuzz");
    // Several runs may be in progress, so each has its own directory.
    let scratch = results.join(format!("run-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)
        .with_context(|| format!("cannot create {}", scratch.display()))?;
    let ours = Oracle::build(&run::root().join("scheduler/oracle"))?;
    let theirs = match modes.iter().all(|mode| mode.is_own()) || !args.file.is_empty() {
        true => None,
        false => Some(Oracle::build(&oracle)?),
    };
    let judge =
        Judge { ours, theirs, engine: engine::Engine::build(&scratch)?, scratch: scratch.clone() };
    let mut fuzz = Fuzz { judge, results, counts: Counts::default(), left_to_shrink: args.shrink };
    for file in &args.file {
        fuzz.judge("files", &generator::read(file)?)?;
    }
    for (number, mode) in modes.iter().enumerate().filter(|_| args.file.is_empty()) {
        let share =
            args.scenarios / modes.len() + usize::from(number < args.scenarios % modes.len());
        fuzz.mode(mode, &oracle, seed, share)?;
    }
    std::fs::remove_dir_all(&scratch)
        .with_context(|| format!("cannot remove {}", scratch.display()))?;
    println!("\n{}", fuzz.counts);
    match fuzz.counts.differing() {
        0 => Ok(()),
        differing => bail!("{differing} scenarios are decided differently (--seed {seed})"),
    }
}

/// Builds Kueue's oracle and the engine's example for `switchyard-bench topology`. Returns the flags with their paths.
pub(crate) fn players(oracle: Option<&Path>) -> anyhow::Result<[OsString; 4]> {
    let kueue = Oracle::build(&oracle.map_or_else(paths::oracle, Path::to_owned))?;
    let dir = run::target().join("bench-topology");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let engine = engine::Engine::build(&dir)?;
    let (kueue, engine) = (kueue.binary().into(), engine.binary().into());
    Ok(["--compiled-oracle".into(), kueue, "--compiled-engine".into(), engine])
}

struct Fuzz {
    judge: Judge,
    /// Directory of differing scenarios.
    results: PathBuf,
    counts: Counts,
    left_to_shrink: usize,
}

impl Fuzz {
    /// Plays all scenarios of a mode: half with Kueue's overlap gate on, half with it off.
    fn mode(
        &mut self,
        mode: &generator::Mode,
        oracle: &std::path::Path,
        seed: u64,
        share: usize,
    ) -> anyhow::Result<()> {
        let (mut next, end) = (0, share);
        while next < end {
            let count = BATCH.min(end - next);
            let scenarios = generator::make(mode, oracle, seed + next as u64, count)?;
            next += count;
            eprintln!("    {}: {next} of {share}", mode.name);
            self.judge(mode.name, &scenarios)?;
        }
        Ok(())
    }

    /// Compares scenarios and prints those that differ.
    fn judge(&mut self, mode: &'static str, scenarios: &[serde_json::Value]) -> anyhow::Result<()> {
        let judged = self.judge.all(scenarios).with_context(|| format!("mode {mode}"))?;
        for (scenario, judgement) in scenarios.iter().zip(judged) {
            let judgement = self.confirmed(scenario, judgement)?;
            self.counts.add(mode, &judgement);
            if let Judgement::Differs { .. } = judgement {
                self.difference(scenario, &judgement)?;
            }
        }
        eprintln!("    {mode}: {}", self.counts.line(mode));
        Ok(())
    }

    /// Repeats a scenario that differs, because Kueue breaks some ties by the order of a Go map, which varies.
    fn confirmed(
        &self,
        scenario: &serde_json::Value,
        judgement: Judgement,
    ) -> anyhow::Result<Judgement> {
        let Judgement::Differs { expect: first, steps, .. } = &judgement else {
            return Ok(judgement);
        };
        if let Some(settled) = self.judge.settled(scenario, ASKED_AGAIN)? {
            return Ok(settled);
        }
        let again = self.judge.all(&vec![scenario.clone(); ASKED_AGAIN])?;
        if again.iter().any(|judged| matches!(judged, Judgement::Same { .. })) {
            return Ok(Judgement::Varies);
        }
        let otherwise = |judged: &Judgement| matches!(judged, Judgement::Differs { expect, .. } if expect != first);
        if again.iter().any(otherwise) {
            println!(
                "{}: Kueue's decisions vary between runs, and none equals the engine's",
                scenario["name"]
            );
            return Ok(Judgement::VariesWithoutMatch);
        }
        for changed in named::without_causes(scenario) {
            // Kueue may still decide it in different ways.
            let settled = self.judge.settled(&changed, ASKED_AGAIN)?;
            let judged = self.judge.all(&vec![changed; ASKED_AGAIN])?;
            if settled == Some(Judgement::Varies)
                || judged.iter().any(|judged| matches!(judged, Judgement::Same { .. }))
            {
                return Ok(Judgement::KnownDifference);
            }
        }
        if let Some(evicted) = named::evicted_for_nodes(first, steps) {
            let mut played = scenario.clone();
            (played["expect"], played["steps"]) = (evicted, steps.clone());
            if self.judge.is_equal(&played)? {
                return Ok(Judgement::KnownDifference);
            }
        }
        Ok(judgement)
    }

    /// Prints a difference, with a shrunk scenario up to the limit of `--shrink`, and saves the scenario.
    fn difference(
        &mut self,
        scenario: &serde_json::Value,
        judgement: &Judgement,
    ) -> anyhow::Result<()> {
        let name = scenario["name"].as_str().unwrap_or("unnamed");
        let (mut scenario, mut judgement) = (scenario.clone(), judgement.clone());
        if self.left_to_shrink > 0 {
            self.left_to_shrink -= 1;
            eprintln!("    {name} differs; shrinking it");
            (scenario, judgement) =
                shrink::smallest(scenario.clone(), judgement, |all| self.judge.all(all))?;
        }
        let Judgement::Differs { expect, steps, difference } = judgement else {
            bail!("{name} does not differ any more")
        };
        let saved = self.results.join("differences").join(format!("{name}.jsonl"));
        (scenario["expect"], scenario["steps"]) = (expect, steps);
        judge::write(&saved, std::slice::from_ref(&scenario))?;
        println!(
            "\n{}\n{difference}\nsaved as {}; after the fix, move it to scheduler/corpus\n",
            render::scenario(&scenario),
            saved.display()
        );
        Ok(())
    }
}
