//! Which figures of each benchmark are drawn.

use serde_json::Value;

use super::bars::{Bar, Bars};
use super::lines::{Line, Lines};
use super::picture::{Panel, list, number, text};
use crate::quantiles::seconds;

/// A panel with one bar for each system, from a list of them.
fn bars(
    title: impl Into<String>,
    note: &str,
    systems: &[Value],
    (value, cut): (&str, &str),
    write: impl Fn(f64) -> String,
) -> anyhow::Result<Panel> {
    let bar = |system: &Value| {
        let value = number(system, value)?;
        let cut = system.pointer(cut).and_then(Value::as_bool).unwrap_or_default();
        anyhow::Ok(Bar { system: text(system, "/system")?, value, text: write(value), cut })
    };
    let bars = systems.iter().map(bar).collect::<anyhow::Result<_>>()?;
    Ok(Panel::Bars(Bars { title: title.into(), note: note.to_owned(), bars }))
}

/// Rates, whose least are well below one.
fn rate(value: f64) -> String {
    if value < 10.0 { format!("{value:.2}") } else { format!("{value:.1}") }
}

fn milliseconds(value: f64) -> String {
    format!("{value:.1} ms")
}

/// Systems with controllers: the floor has no CPU of a dispatcher.
fn dispatchers(systems: &[Value]) -> Vec<Value> {
    systems.iter().filter(|system| system["system"] != "floor").cloned().collect()
}

pub(super) fn burst(document: &Value) -> anyhow::Result<Vec<Panel>> {
    let mut panels = Vec::new();
    for report in list(document, "/reports")? {
        let (form, jobs) = (text(report, "/form")?, thousands(number(report, "/jobs")?));
        let systems = list(report, "/systems")?;
        let until = if form == "dispatch" {
            "until each is on a worker"
        } else {
            "until each is Complete on the hub"
        };
        let title = format!("{jobs} jobs {until}");
        panels.push(bars(
            title,
            "jobs a second, more is better",
            systems,
            ("/jobsPerSecond/clock", "/cut"),
            rate,
        )?);
        let controllers = ("/cpuMillisecondsPerJob/controllers", "/cut");
        let note = "CPU of hub and workers for each job, less is better";
        panels.push(bars(
            "What the controllers use",
            note,
            &dispatchers(systems),
            controllers,
            milliseconds,
        )?);
    }
    Ok(panels)
}

pub(super) fn trickle(document: &Value) -> anyhow::Result<Vec<Panel>> {
    let mut panels = Vec::new();
    let rate = thousands(number(document, "/settings/ratePerSecond")?);
    for report in list(document, "/reports")? {
        let systems = list(report, "/systems")?;
        for (part, what) in
            [("oneAtATime", "one at a time"), ("atARate", &format!("{rate} a second"))]
        {
            for (quantile, name) in [("p50Seconds", "half of them"), ("p99Seconds", "99 in 100")] {
                let value = format!("/{part}/fromCreation/toPod/{quantile}");
                let title = format!("Jobs, {what}: {name} within");
                let note = "from creation on the hub to the pod on the worker";
                panels.push(bars(
                    title,
                    note,
                    systems,
                    (&value, &format!("/{part}/cut")),
                    seconds,
                )?);
            }
        }
        let controllers = dispatchers(systems);
        let value = ("/atARate/cpuMillisecondsPerJob/controllers", "/atARate/cut");
        let note = "CPU of hub and workers for each job, less is better";
        panels.push(bars(
            format!("What {rate} a second use"),
            note,
            &controllers,
            value,
            milliseconds,
        )?);
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        let note = "CPU of hub and workers, of one core";
        panels.push(bars(
            "What they use when idle",
            note,
            &controllers,
            ("/idle/cores/controllers", "/-"),
            percent,
        )?);
    }
    Ok(panels)
}

pub(super) fn runner(document: &Value) -> anyhow::Result<Vec<Panel>> {
    let mut panels = Vec::new();
    for report in list(document, "/reports")? {
        let generator = text(report, "/generator")?;
        let systems = list(report, "/systems")?;
        let workloads =
            systems.iter().filter_map(|system| system["workloads"].as_f64()).fold(0.0, f64::max);
        let title = format!("{generator}: {} workloads", thousands(workloads));
        let whole = |value: f64| format!("{value:.0} s");
        panels.push(bars(
            title,
            "seconds until all are finished, less is better",
            systems,
            ("/seconds", "/cut"),
            whole,
        )?);
        let classes = systems.iter().filter_map(|system| system["queueClasses"].as_object());
        let class = classes.flat_map(|classes| classes.keys()).next().cloned().unwrap_or_default();
        let quota = format!("/queueClasses/{class}/quotaInUse");
        let percent = |share: f64| format!("{:.1} %", share * 100.0);
        panels.push(bars(
            "Quota in use",
            "on average, more is better",
            systems,
            (&quota, "/cut"),
            percent,
        )?);
        let cpu = ("/cpuMillisecondsPerWorkload/controller", "/cut");
        let short = |value: f64| format!("{value:.2} ms");
        panels.push(bars(
            "What admission uses",
            "CPU for each workload, less is better",
            systems,
            cpu,
            short,
        )?);
        let megabytes = |bytes: f64| format!("{:.0} MB", bytes / 1e6);
        panels.push(bars(
            "Memory",
            "the most that was resident, less is better",
            systems,
            ("/peakBytes", "/cut"),
            megabytes,
        )?);
    }
    Ok(panels)
}

pub(super) fn scale(document: &Value) -> anyhow::Result<Vec<Panel>> {
    let reports = list(document, "/reports")?;
    let running = thousands(number(document, "/settings/running")?);
    let queued = thousands(number(document, "/settings/queued")?);
    let changes = format!("{} changes/s", number(document, "/settings/changesPerSecond")?);
    let line = |name: &str, pointer: &str, unit: f64| {
        let mut points = Vec::new();
        for report in reports {
            points.push((number(report, "/clusters")?, number(report, pointer)? * unit));
        }
        points.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        anyhow::Ok(Line { name: name.to_owned(), points })
    };
    let panel = |title: &str, note: &str, lines: Vec<Line>| {
        Panel::Lines(Lines { title: title.to_owned(), note: note.to_owned(), lines })
    };
    let (idle, quiet) = ("no jobs", "all quiet");
    Ok(vec![
        panel(
            "CPU of the hub",
            &format!("percent of one core; {running} jobs run, {queued} wait"),
            vec![
                line(&changes, "/hubCores/changes", 100.0)?,
                line(quiet, "/hubCores/quiet", 100.0)?,
                line(idle, "/hubCores/idle", 100.0)?,
            ],
        ),
        panel(
            "Memory of the hub",
            "MB resident",
            vec![
                line("at most", "/hubBytes/peak", 1e-6)?,
                line(quiet, "/hubBytes/quiet", 1e-6)?,
                line(idle, "/hubBytes/idle", 1e-6)?,
            ],
        ),
        panel(
            "Dispatch",
            &format!("jobs a second, {running} from a queue of {running} + {queued}"),
            vec![line("dispatched", "/jobsPerSecond/dispatched", 1.0)?],
        ),
        panel(
            "How late the hub shows a change",
            "milliseconds from the agent's word to the hub's Job",
            vec![
                line("p99", "/statusLag/p99Seconds", 1000.0)?,
                line("p50", "/statusLag/p50Seconds", 1000.0)?,
            ],
        ),
    ])
}

pub(super) fn topology(document: &Value) -> anyhow::Result<Vec<Panel>> {
    let mut panels = Vec::new();
    for report in list(document, "/reports")? {
        let [nodes, queues, pending] =
            [number(report, "/nodes")?, number(report, "/queues")?, number(report, "/pending")?]
                .map(thousands);
        let systems = list(report, "/systems")?;
        let short = |value: f64| format!("{value:.2} ms");
        for (quantile, name) in [("/p50Ms", "half"), ("/p99Ms", "99 in 100")] {
            let title = format!("{nodes} nodes: {name} of the cycles within");
            let note = format!("{queues} queues, {pending} gangs; less is better");
            panels.push(bars(title, &note, systems, (quantile, "/-"), short)?);
        }
    }
    Ok(panels)
}

/// With a comma after the thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let grouped: Vec<&str> = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .filter_map(|part| std::str::from_utf8(part).ok())
        .collect();
    grouped.join(",")
}
