//! The runner's results, `summary.yaml` and `wlStates.csv`.

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::Value;

/// Its figures, by class.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Summary {
    pub(super) queues: BTreeMap<String, Queues>,
    pub(super) workloads: BTreeMap<String, Workloads>,
    /// Workloads that it saw finish. It ends when no ClusterQueue says that it has any left, whether that is so or not.
    pub(super) finished: u64,
    /// Changes that it was too slow to look at.
    pub(super) dropped: u64,
}

/// ClusterQueues of one class.
#[derive(Debug, PartialEq)]
pub(super) struct Queues {
    /// Share of the nominal quota in use, on average. Between 0 and 1, or above with borrowing.
    pub(super) quota_in_use: f64,
}

/// Workloads of one class. Times on average, in seconds.
#[derive(Debug, PartialEq)]
pub(super) struct Workloads {
    pub(super) count: u64,
    pub(super) evictions: u64,
    pub(super) to_admission: f64,
    pub(super) to_finish: f64,
}

impl Summary {
    /// # Errors
    /// When they are none.
    pub(super) fn parse(yaml: &str, states: &str) -> anyhow::Result<Self> {
        let mut rows = states.lines().map(|row| row.split(',').collect::<Vec<_>>());
        let head = rows.next().unwrap_or_default();
        let column = head
            .iter()
            .position(|name| *name == "ms to finish")
            .context("wlStates.csv: no \"ms to finish\"")?;
        let finished = rows.filter(|row| row.get(column).is_some_and(|time| *time != "0")).count();
        let summary: Value = serde_saphyr::from_str(yaml).context("the runner's summary")?;
        let classes = |name: &str| summary[name].as_object().cloned().unwrap_or_default();
        let number = |value: &Value| value.as_f64().unwrap_or_default();
        let queues = |(class, it): (String, Value)| {
            let quota_in_use =
                number(&it["cpuAverageUsage"]) / number(&it["nominalQuota"]).max(1.0);
            (class, Queues { quota_in_use })
        };
        let workloads = |(class, it): (String, Value)| {
            let workloads = Workloads {
                count: it["count"].as_u64().unwrap_or_default(),
                evictions: it["totalEvictions"].as_u64().unwrap_or_default(),
                to_admission: number(&it["averageTimeToAdmissionMs"]) / 1000.0,
                to_finish: number(&it["averageTimeToFinishMs"]) / 1000.0,
            };
            (class, workloads)
        };
        Ok(Self {
            queues: classes("clusterQueueClasses").into_iter().map(queues).collect(),
            workloads: classes("workloadClasses").into_iter().map(workloads).collect(),
            finished: u64::try_from(finished)?,
            dropped: summary["droppedWorkloadEvents"].as_u64().unwrap_or_default(),
        })
    }

    /// How many Workloads it saw.
    pub(super) fn count(&self) -> u64 {
        self.workloads.values().map(|workloads| workloads.count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read_as_the_runner_writes_it() {
        let text = "clusterQueueClasses:
  cq:
    cpuAverageUsage: 324054
    cpuUsed: 127000000
    firstEventTime: \"2026-11-21T10:00:00Z\"
    lastEventTime: \"2026-11-21T10:06:32Z\"
    nominalQuota: 600000
droppedWorkloadEvents: 3
workloadClasses:
  large:
    averageTimeToAdmissionMs: 16501
    averageTimeToFinishMs: 17600
    count: 1500
    totalEvictions: 2
";
        let states = "id,class name,namespace,name,ms to admitted,ms to finish,num evictions
0,large,ns,a,70,1080,0
1,large,ns,b,0,0,0
";
        let summary = Summary::parse(text, states).unwrap();
        assert_eq!(summary.queues["cq"], Queues { quota_in_use: 0.54009 });
        let large = Workloads { count: 1500, evictions: 2, to_admission: 16.501, to_finish: 17.6 };
        assert_eq!(summary.workloads["large"], large);
        assert_eq!((summary.count(), summary.finished, summary.dropped), (1500, 1, 3));
    }
}
