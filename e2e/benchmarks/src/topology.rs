//! Scheduling cycles with topologies: the same scenarios for Kueue's own scheduler and for the engine, in one run. Neither has
//! an API server.

mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use switchyard_e2e::paths;
use switchyard_flags::bench::topology::{Args, Size};

use self::report::Report;
use super::document::Document;

/// The times of all cycles of a scenario.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cycles {
    count: u64,
    seconds: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

/// One scenario.
#[derive(Debug)]
struct Outcome {
    size: Size,
    /// `None` if the engine played alone.
    kueue: Option<Cycles>,
    engine: Cycles,
    /// The first decision of the engine that differs from Kueue's, if both played.
    difference: Option<String>,
}

/// Plays everything and prints a table.
///
/// # Errors
/// When a scenario cannot be made or played.
pub fn run(args: &Args) -> anyhow::Result<()> {
    let (Some(kueue), Some(engine)) = (&args.compiled_oracle, &args.compiled_engine) else {
        bail!("start it with `cargo xtask bench topology`, which builds what plays the scenarios")
    };
    let oracle = args.oracle.clone().unwrap_or_else(paths::oracle);
    let mut document = Document::new("topology", &json!({"seed": args.seed}))?;
    let dir = paths::target().join("bench-topology");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut outcomes = Vec::new();
    let both = args.sizes.iter().map(|size| (size, Some(kueue.as_path())));
    for (size, kueue) in both.chain(args.alone.iter().map(|size| (size, None))) {
        let made = make(&oracle, *size, args.seed, &dir)?;
        outcomes.push(one(*size, &made, kueue, engine)?);
        let report = Report(&outcomes);
        println!("\n{report}");
        if let Some(outcome) = outcomes.last() {
            document.add(outcome.json(), args.json.as_deref())?;
        }
    }
    Ok(())
}

/// Makes a scenario with the oracle's own generator.
fn make(oracle: &Path, size: Size, seed: u64, dir: &Path) -> anyhow::Result<PathBuf> {
    let numbers = [u64::from(size.nodes), size.queues.into(), size.pending.into(), seed];
    let output = Command::new("python3")
        .arg(oracle.join("tas-bench.py"))
        .args(numbers.map(|number| number.to_string()))
        .stderr(Stdio::inherit())
        .output()
        .context("tas-bench.py needs python3: install it")?;
    let name = oracle.join("tas-bench.py");
    ensure!(output.status.success(), "{} ended with {}", name.display(), output.status);
    let name = format!("{}-{}-{}.jsonl", size.nodes, size.queues, size.pending);
    let file = dir.join(name);
    std::fs::write(&file, with_gate(&output.stdout)?)
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

/// The scenario with an explicit value of a gate that the oracle and the engine's example default
/// differently. The value is the default of Kueue v0.19.2.
fn with_gate(made: &[u8]) -> anyhow::Result<String> {
    let mut scenario: Value =
        serde_json::from_slice(made).context("tas-bench.py prints no JSON")?;
    scenario["gates"]["RecomputeAssignmentUponPreemptionTargetsOverlap"] = json!(false);
    Ok(format!("{scenario}\n"))
}

fn one(size: Size, made: &Path, kueue: Option<&Path>, engine: &Path) -> anyhow::Result<Outcome> {
    let (mut scenario, mut of_kueue) = (made.to_owned(), None);
    if let Some(kueue) = kueue {
        eprintln!("==> topology, {size}: Kueue's scheduler");
        // With Kueue's decisions, for the engine to compare its own with.
        scenario = made.with_extension("played.jsonl");
        of_kueue = Some(play_kueue(kueue, made, &scenario)?);
    }
    eprintln!("==> topology, {size}: the engine");
    let output = Command::new(engine).arg("--time").arg(&scenario).output();
    let output = output.with_context(|| format!("cannot start {}", engine.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.lines().find_map(|line| serde_json::from_str::<Value>(line).ok());
    let told = told.with_context(|| {
        format!("the engine's example: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    let difference = told["difference"].as_str().map(|it| it.trim().to_owned());
    let engine = Cycles::read(&told).with_context(|| format!("no times in {told}"))?;
    Ok(Outcome {
        size,
        difference: difference.filter(|_| kueue.is_some()),
        kueue: of_kueue,
        engine,
    })
}

fn play_kueue(kueue: &Path, input: &Path, played: &Path) -> anyhow::Result<Cycles> {
    let output = Command::new(kueue)
        .args(["-test.run", "^TestOracle$", "-test.timeout", "0"])
        .env("ORACLE_IN", input)
        .env("ORACLE_OUT", played)
        .env("ORACLE_TIME", "1")
        .env("ORACLE_MESSAGES", "0")
        .output()
        .with_context(|| format!("cannot start {}", kueue.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.lines().find_map(Cycles::parse);
    told.with_context(|| format!("Kueue's scheduler told no times ({}):\n{text}", output.status))
}

impl Cycles {
    /// The oracle's line, `TIME name: 972 cycles in 36.1 s; ms: p50 36.0, p90 55.0, p99 85.0, max 170.0`.
    fn parse(line: &str) -> Option<Self> {
        let (head, told) = line.strip_prefix("TIME ")?.split_once("; ms: ")?;
        let head = head.rsplit_once(": ")?.1;
        let (count, seconds) = head.strip_suffix(" s")?.split_once(" cycles in ")?;
        let mut times = told.split(", ").map(|part| part.rsplit_once(' ')?.1.parse::<f64>().ok());
        let mut next = || times.next().flatten();
        Some(Self {
            count: count.parse().ok()?,
            seconds: seconds.parse().ok()?,
            p50_ms: next()?,
            p90_ms: next()?,
            p99_ms: next()?,
            max_ms: next()?,
        })
    }

    /// As the engine's example prints them.
    fn read(told: &Value) -> Option<Self> {
        let number = |name: &str| told[name].as_f64();
        Some(Self {
            count: told["cycles"].as_u64()?,
            seconds: number("seconds")?,
            p50_ms: number("p50Ms")?,
            p90_ms: number("p90Ms")?,
            p99_ms: number("p99Ms")?,
            max_ms: number("maxMs")?,
        })
    }

    fn json(&self, system: &str) -> Value {
        json!({
            "system": system, "cycles": self.count, "seconds": self.seconds, "p50Ms": self.p50_ms,
            "p90Ms": self.p90_ms, "p99Ms": self.p99_ms, "maxMs": self.max_ms,
        })
    }
}

impl Outcome {
    fn json(&self) -> Value {
        let kueue = self.kueue.as_ref().map(|cycles| cycles.json("stock"));
        let systems: Vec<Value> = [self.engine.json("ours")].into_iter().chain(kueue).collect();
        json!({
            "nodes": self.size.nodes, "queues": self.size.queues, "pending": self.size.pending,
            "difference": self.difference, "systems": systems,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Cycles;

    #[test]
    fn times_of_the_oracle_are_read() {
        let line = "TIME tas-bench-320-10-300-1: 972 cycles in 36.1 s; ms: p50 36.0, p90 55.1, p99 85.2, max 170.3";
        let cycles = Cycles::parse(line).unwrap();
        assert_eq!((cycles.count, cycles.seconds), (972, 36.1));
        assert_eq!(
            [cycles.p50_ms, cycles.p90_ms, cycles.p99_ms, cycles.max_ms],
            [36.0, 55.1, 85.2, 170.3]
        );
        assert_eq!(Cycles::parse("0 same, 1 different"), None);
    }
}
