//! Shrinks a failing run: removes faults, workloads and noise while the same law breaks.

use switchyard_flags::simulate::Mutation;

use crate::plan::Plan;
use crate::violation::Law;

/// Seeds for each smaller plan.
const SEEDS: u64 = 6;
/// All runs of one shrink.
const RUNS: u32 = 3_000;

/// A smaller plan that breaks the same law, or the same plan.
pub fn shrink(plan: &Plan, law: Law, mutation: Option<Mutation>) -> Plan {
    let mut runs = 0;
    let mut best = plan.clone();
    loop {
        // A plan with a job that can never run breaks the law of liveness with correct code too.
        let smaller = candidates(&best).into_iter().filter(Plan::can_end).find_map(|candidate| {
            (0..SEEDS).find_map(|step| {
                runs += 1;
                if runs > RUNS {
                    return None;
                }
                let candidate = Plan { seed: best.seed.wrapping_add(step), ..candidate.clone() };
                let broken = crate::guarded(&candidate, mutation, false)
                    .violation
                    .is_some_and(|it| it.law == law);
                broken.then_some(candidate)
            })
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}

fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    if plan.faults.len() > 2 {
        let half = plan.faults.len() / 2;
        all.push(Plan { faults: plan.faults[..half].to_vec(), ..plan.clone() });
        all.push(Plan { faults: plan.faults[half..].to_vec(), ..plan.clone() });
    }
    for index in 0..plan.faults.len() {
        let mut smaller = plan.clone();
        smaller.faults.remove(index);
        all.push(smaller);
    }
    // Workloads are named by number, so only the last can be removed. The others are submitted too
    // late to matter.
    if plan.workloads.len() > 1 {
        let mut smaller = plan.clone();
        smaller.workloads.pop();
        let left = smaller.workloads.len();
        smaller.faults.retain(|fault| fault.kind.workload().is_none_or(|workload| workload < left));
        all.push(smaller);
    }
    for index in 0..plan.workloads.len().saturating_sub(1) {
        if plan.workloads[index].runs > 100 || plan.workloads[index].at > 0 {
            let mut smaller = plan.clone();
            (smaller.workloads[index].runs, smaller.workloads[index].at) = (100, 0);
            all.push(smaller);
        }
    }
    if plan.clusters.len() > 1 {
        let mut smaller = plan.clone();
        smaller.clusters.pop();
        let left = smaller.clusters.len();
        smaller.faults.retain(|fault| fault.kind.cluster().is_none_or(|cluster| cluster < left));
        all.push(smaller);
    }
    if plan.hubs.len() > 1 {
        let mut smaller = plan.clone();
        smaller.hubs.pop();
        let left = smaller.hubs.len();
        smaller.faults.retain(|fault| fault.kind.hub().is_none_or(|hub| hub < left));
        all.push(smaller);
    }
    let noise = &plan.noise;
    if noise.twice > 0 {
        all.push(Plan { noise: crate::plan::Noise { twice: 0, ..noise.clone() }, ..plan.clone() });
    }
    if noise.lost_answers > 0 {
        all.push(Plan {
            noise: crate::plan::Noise { lost_answers: 0, ..noise.clone() },
            ..plan.clone()
        });
    }
    if noise.lost_requests > 0 {
        all.push(Plan {
            noise: crate::plan::Noise { lost_requests: 0, ..noise.clone() },
            ..plan.clone()
        });
    }
    all
}
