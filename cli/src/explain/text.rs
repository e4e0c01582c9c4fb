//! Renders an explanation as text.

use jiff::Timestamp;
use switchyard_api::v1beta2::OtherFlavor;

use super::clusters::ClusterView;
use super::quota::{FlavorView, PodSetView, PreemptionView, ResourceView, VictimView};
use super::topology::PlacementView;
use super::view::{ExplanationView, PositionView, ReasonView};
use crate::table;

/// State and reason, identity, position in the queue, figures by flavor, and what has to change.
pub(super) fn render_text(view: &ExplanationView, now: Timestamp) -> String {
    let ago = |at: Timestamp| format!("{} ago", table::age(now.as_second() - at.as_second()));
    let mut facts = vec![("Verdict", view.verdict.clone())];
    facts.extend(why(view).map(|why| ("Why", why)));
    facts.push(("Workload", format!("{}/{}", view.namespace, view.workload)));
    if view.job.kind != "Workload" {
        facts.push(("Job", format!("{} {}", view.job.kind, view.job.name)));
    }
    facts.push(("Queue", queue(view)));
    facts.push(("Priority", view.priority.to_string()));
    if let Some(trouble) = &view.trouble {
        facts.push(("Trouble", format!("{} ({})", trouble.reason, ago(trouble.since))));
    }
    if let Some(recorded) =
        view.recorded.as_ref().filter(|recorded| Some(&recorded.message) != reason_message(view))
    {
        facts.push((
            "Recorded",
            format!("{}: {} ({})", recorded.reason, recorded.message, ago(recorded.since)),
        ));
    }
    if let Some(place) = &view.place {
        facts.extend(self::place(view, place, now).into_iter().map(|line| ("Place", line)));
    }
    if let Some(admission) = &view.admission {
        facts.extend(admission.reserved_since.map(|at| ("Reserved", ago(at))));
        facts.extend(admission.admitted_since.map(|at| ("Admitted", ago(at))));
    }
    if let Some(dispatch) = &view.dispatch {
        facts.push((
            "Cluster",
            match (&dispatch.cluster, &dispatch.nominated_clusters[..]) {
                (Some(cluster), _) => format!("{cluster} (attempt {})", dispatch.attempt),
                (None, []) => format!("none yet (attempt {})", dispatch.attempt),
                (None, nominated) => format!("trying {}", nominated.join(", ")),
            },
        ));
        let other = |it: &OtherFlavor| {
            let OtherFlavor { pod_set, resource, charged, used } = it;
            ("Flavor", format!("{resource} of {pod_set} runs in {used}; {charged} is charged"))
        };
        facts.extend(dispatch.other_flavors.iter().map(other));
    }
    let mut out = lines(&facts);
    out.push_str(&admission(view));
    out.push_str(&checks(view));
    out.push_str(&clusters(view));
    if view.outlook == "NotTried" && !view.pod_sets.is_empty() {
        out.push_str("\nIf it were tried:\n");
    }
    for pod_set in &view.pod_sets {
        out.push_str(&self::pod_set(pod_set));
    }
    out.push_str(&view.placement.as_ref().map(PlacementView::text).unwrap_or_default());
    if !view.victims.is_empty() {
        out.push_str("\nWould be preempted for it:\n");
        out.push_str(&victims(&view.victims, "  "));
    }
    if !view.unknown.is_empty() {
        out.push_str("\nWorked out from the cluster's objects. What cannot be seen in them:\n");
        view.unknown.iter().for_each(|unknown| out.push_str(&format!("  - {unknown}\n")));
    }
    if let Some(change) = &view.change {
        out.push_str(&format!("\nTo start, it needs: {change}\n"));
    }
    out
}

/// `Name: value` lines; a repeated name is left out.
fn lines(facts: &[(&str, String)]) -> String {
    let mut out = String::new();
    let mut last = "";
    for (name, value) in facts {
        let shown = if *name == last { String::new() } else { format!("{name}:") };
        out.push_str(format!("{shown:<10} {value}").trim_end());
        out.push('\n');
        last = name;
    }
    out
}

fn queue(view: &ExplanationView) -> String {
    let mut text = view.local_queue.clone();
    if let Some(cluster_queue) = &view.cluster_queue {
        text.push_str(&format!(" -> ClusterQueue {cluster_queue}"));
    }
    if let Some(cohort) = &view.cohort {
        text.push_str(&format!(" in cohort {cohort}"));
    }
    text
}

fn reason_message(view: &ExplanationView) -> Option<&String> {
    view.reason.as_ref().map(|reason| &reason.message)
}

fn why(view: &ExplanationView) -> Option<String> {
    let inactive = |cause: &ReasonView| format!("{}: {}", cause.reason, cause.message);
    let causes = view.local_queue_inactive.iter().chain(&view.cluster_queue_inactive);
    let causes: Vec<String> = causes.map(inactive).collect();
    let reason = view.reason.as_ref()?;
    let causes =
        if causes.is_empty() { String::new() } else { format!(" ({})", causes.join("; ")) };
    Some(format!("{}: {}{causes}", reason.reason, reason.message))
}

fn place(view: &ExplanationView, place: &PositionView, now: Timestamp) -> Vec<String> {
    let mut text = format!(
        "{} of {} in the ClusterQueue, {} of {} in the LocalQueue",
        place.position_in_cluster_queue + 1,
        place.pending_in_cluster_queue,
        place.position_in_local_queue + 1,
        place.pending_in_local_queue
    );
    if place.head.is_none() && view.outlook != "NotTried" {
        text.push_str("; it is the head");
    }
    let mut lines = vec![text];
    if let Some(until) = place.backing_off_until {
        lines.push(format!(
            "backing off for {} more",
            table::age(until.as_second() - now.as_second())
        ));
    }
    if let Some(head) = &place.head {
        let strict = match place.queueing_strategy {
            "StrictFIFO" => "blocks all behind it (StrictFIFO)",
            _ => "is tried first (BestEffortFIFO: if it does not fit, the next one is tried)",
        };
        lines
            .push(format!("behind {} (priority {}), which {strict}", head.workload, head.priority));
        lines.push(match &head.reason {
            Some(reason) if view.reason.as_ref() == Some(reason) => {
                "  and waits for the same reason".to_owned()
            }
            Some(reason) => format!("  and waits because {}: {}", reason.reason, reason.message),
            None => "  and fits".to_owned(),
        });
    }
    lines
}

fn admission(view: &ExplanationView) -> String {
    let Some(admission) = &view.admission else { return String::new() };
    let mut rows = Vec::new();
    for pod_set in &admission.pod_sets {
        let count = pod_set.count.map(|count| count.to_string()).unwrap_or_default();
        for (resource, usage) in &pod_set.usage {
            let flavor = pod_set.flavors.get(resource).cloned().unwrap_or_default();
            rows.push([
                pod_set.name.clone(),
                count.clone(),
                resource.clone(),
                flavor,
                usage.clone(),
            ]);
        }
    }
    let mut out =
        format!("\n{}", table::render(["PODSET", "PODS", "RESOURCE", "FLAVOR", "HELD"], &rows));
    for pod_set in &admission.pod_sets {
        out.push_str(
            &pod_set.topology.as_ref().map(|it| it.text(&pod_set.name)).unwrap_or_default(),
        );
    }
    if !admission.unhealthy_nodes.is_empty() {
        let nodes = admission.unhealthy_nodes.join(", ");
        out.push_str(&format!("Failed nodes, to be replaced: {nodes}\n"));
    }
    out
}

fn checks(view: &ExplanationView) -> String {
    if view.admission_checks.is_empty() {
        return String::new();
    }
    let rows: Vec<_> = view
        .admission_checks
        .iter()
        .map(|check| [check.name.clone(), check.state.clone(), check.message.clone()])
        .collect();
    format!("\n{}", table::render(["CHECK", "STATE", "MESSAGE"], &rows))
}

fn clusters(view: &ExplanationView) -> String {
    if view.clusters.is_empty() {
        return String::new();
    }
    let row = |cluster: &ClusterView| {
        let verdict = cluster
            .excluded_by
            .as_ref()
            .map_or_else(|| "may go there".to_owned(), |rule| format!("no: {rule}"));
        let verdict = match &cluster.nodes_full {
            Some(why) => format!("{verdict}; its pods would wait for a node: {why}"),
            None => verdict,
        };
        [cluster.name.clone(), cluster.preferred_by.to_string(), cluster.cost.to_string(), verdict]
    };
    let rows: Vec<_> = view.clusters.iter().map(row).collect();
    format!("\n{}", table::render(["CLUSTER", "PREFERRED BY", "COST", "RULES"], &rows))
}

fn pod_set(pod_set: &PodSetView) -> String {
    let asks: Vec<String> =
        pod_set.requests.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    let least = pod_set.min_count.map(|least| format!(", {least} are enough")).unwrap_or_default();
    let asks = if asks.is_empty() { "nothing".to_owned() } else { asks.join(", ") };
    let pods = if pod_set.count == 1 { "pod" } else { "pods" };
    let mut out =
        format!("\nPod set {} ({} {pods}{least}) asks for {asks}\n", pod_set.name, pod_set.count);
    if let Some(problem) = &pod_set.problem {
        out.push_str(&format!("  {problem}\n"));
    }
    for resource in &pod_set.uncovered_resources {
        out.push_str(&format!("  {resource} is in no resource group of the ClusterQueue\n"));
    }
    let several = pod_set.flavors.len() > 1;
    let rows: Vec<[String; 9]> =
        pod_set.flavors.iter().flat_map(|flavor| rows(flavor, several)).collect();
    if !rows.is_empty() {
        let headings = [
            "FLAVOR",
            "RESOURCE",
            "ASKED",
            "FREE",
            "BORROWABLE",
            "NOMINAL",
            "USED",
            "MAX",
            "VERDICT",
        ];
        out.push_str(&table::render(headings, &rows));
    }
    if several && pod_set.flavors.iter().any(|flavor| flavor.chosen) {
        out.push_str("* the flavor that would be taken\n");
    }
    // Once a flavor fits, the others do not matter.
    if !pod_set.flavors.iter().any(|flavor| flavor.chosen && flavor.verdict == "Fits") {
        for flavor in &pod_set.flavors {
            flavor.resources.iter().for_each(|resource| out.push_str(&detail(flavor, resource)));
        }
    }
    out
}

fn rows(flavor: &FlavorView, several: bool) -> Vec<[String; 9]> {
    let name =
        if flavor.chosen && several { format!("{} *", flavor.name) } else { flavor.name.clone() };
    let row = |resource: &ResourceView| {
        let asked = if resource.earlier == "0" {
            resource.asked.clone()
        } else {
            format!("{} + {}", resource.earlier, resource.asked)
        };
        let verdict = flavor.mismatch.clone().unwrap_or_else(|| match resource.verdict {
            "Fits" | "ExceedsMaxQuota" => resource.verdict.to_owned(),
            verdict => format!("{verdict}: {} more needed", resource.missing),
        });
        [
            name.clone(),
            resource.name.clone(),
            asked,
            resource.free.clone(),
            resource.borrowable.clone(),
            resource.nominal.clone(),
            resource.used.clone(),
            resource.max.clone(),
            verdict,
        ]
    };
    flavor.resources.iter().map(row).collect()
}

/// The limits that keep one resource from fitting on one flavor.
fn detail(flavor: &FlavorView, resource: &ResourceView) -> String {
    if resource.verdict == "Fits" || flavor.mismatch.is_some() {
        return String::new();
    }
    let mut out = format!("{} on {}:\n", resource.name, flavor.name);
    out.push_str(&format!("  {}\n", bound(resource)));
    for kept in &resource.kept_by_lending_limits {
        out.push_str(&format!(
            "  {} more is free in {}, whose lendingLimit keeps it\n",
            kept.amount, kept.name
        ));
    }
    let Some(preemption) = &resource.preemption else { return out };
    // Victims for the chosen flavor are listed at the end.
    if !preemption.victims.is_empty() && !flavor.chosen {
        out.push_str("  room would be made by preempting\n");
        out.push_str(&victims(&preemption.victims, "    "));
    }
    out.push_str(&refusals(preemption));
    out
}

fn bound(resource: &ResourceView) -> String {
    let bound = &resource.bound;
    let name = bound.name.as_deref().unwrap_or_default();
    match (bound.kind, &bound.limit) {
        ("NoCohort", _) => {
            "the ClusterQueue is in no cohort: there is only its own quota".to_owned()
        }
        _ if resource.verdict == "ExceedsMaxQuota" => {
            format!("even if nobody used anything, there would be no more than {}", resource.max)
        }
        ("BorrowingLimit", Some(limit)) => {
            format!("no more than {limit} may be borrowed: borrowingLimit of {name}")
        }
        _ => format!("no more is free in all of cohort {name}"),
    }
}

fn refusals(preemption: &PreemptionView) -> String {
    if preemption.refused.is_empty() {
        return String::new();
    }
    let mut out = "  nobody is preempted for it:\n".to_owned();
    for refusal in &preemption.refused {
        let who = match refusal.workloads {
            1 => refusal.example.clone(),
            many => format!("{many} workloads, such as {},", refusal.example),
        };
        let (queue, holds, message) = (&refusal.cluster_queue, &refusal.holds, &refusal.message);
        let verb = if refusal.workloads == 1 { "holds" } else { "hold" };
        out.push_str(&format!("    {who} of {queue} {verb} {holds}: {message}\n"));
    }
    out
}

fn victims(victims: &[VictimView], indent: &str) -> String {
    let line = |victim: &VictimView| {
        format!(
            "{indent}{} of {} (priority {}): {}\n",
            victim.workload, victim.cluster_queue, victim.priority, victim.reason
        )
    };
    victims.iter().map(line).collect()
}
