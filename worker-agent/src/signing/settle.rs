//! How a cluster's key becomes enforced. Until then, marks suffice for a copy: jobs keep running,
//! and fences work.
//!
//! The key is enforced once every marked object has a proof. If some have none, the operators first
//! have to declare that they are the hub's. Then the agent signs them all.

use std::time::Duration;

use futures::future::BoxFuture;

use super::Unproved;

/// The durations of the steps.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After this time, no creation of an earlier process can still take effect.
    pub late: Duration,
    /// The delay between two tries.
    pub again: Duration,
}

impl Default for Pace {
    /// API servers abort requests after 60 seconds by default.
    fn default() -> Self {
        Self { late: Duration::from_secs(75), again: Duration::from_secs(10) }
    }
}

/// The marked objects of a cluster.
pub trait MarkedObjects: Send + Sync {
    /// Lists the marked objects without a proof.
    fn scan(&self) -> BoxFuture<'_, Result<Unproved, String>>;

    /// Signs all marked objects.
    fn sign(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// The result of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScanResult {
    /// These objects have marks and no proof.
    Found(Unproved),
    /// The scan failed, and why.
    Failed(String),
}

impl ScanResult {
    /// Why the key is not enforced; empty if nothing prevents it.
    pub fn obstacle(&self) -> String {
        match self {
            Self::Found(unproved) if unproved.count == 0 => String::new(),
            Self::Found(unproved) => unproved.to_string(),
            Self::Failed(error) => error.clone(),
        }
    }
}

/// The operators of the hub.
pub trait Operators: Send + Sync {
    /// Reports the result. Returns whether they trust the marked objects.
    fn report<'a>(&'a self, scan: &'a ScanResult) -> BoxFuture<'a, bool>;
}

/// Returns once the key may be enforced. A failure changes nothing.
pub async fn settle(marked: &dyn MarkedObjects, operators: &dyn Operators, pace: Pace) {
    loop {
        match round(marked, operators, pace).await {
            Ok(true) => {
                operators.report(&ScanResult::Found(Unproved::default())).await;
                return;
            }
            Ok(false) => {}
            Err(error) => {
                operators.report(&ScanResult::Failed(error)).await;
            }
        }
        tokio::time::sleep(pace.again).await;
    }
}

/// Returns whether every marked object has its proof.
async fn round(
    marked: &dyn MarkedObjects,
    operators: &dyn Operators,
    pace: Pace,
) -> Result<bool, String> {
    let found = marked.scan().await?;
    let some = found.count > 0;
    let trusted = operators.report(&ScanResult::Found(found)).await;
    if some && !trusted {
        return Ok(false);
    }
    if some {
        marked.sign().await?;
    }
    tokio::time::sleep(pace.late).await;
    // Late creations of an earlier process have taken effect by now. This process signs its own.
    let late = marked.scan().await?;
    if late.count == 0 {
        return Ok(true);
    }
    if !trusted {
        operators.report(&ScanResult::Found(late)).await;
        return Ok(false);
    }
    marked.sign().await.map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Numbers of objects without a proof, and a record of the calls.
    #[derive(Default)]
    struct Cluster {
        unproved: Mutex<usize>,
        /// Created by an earlier process between the first scan and the second.
        late: Mutex<Vec<usize>>,
        /// The answers to signing, in order. Then signing succeeds.
        refusals: Mutex<Vec<&'static str>>,
        done: Mutex<Vec<String>>,
    }

    impl MarkedObjects for Cluster {
        fn scan(&self) -> BoxFuture<'_, Result<Unproved, String>> {
            let count = *self.unproved.lock().unwrap();
            self.done.lock().unwrap().push(format!("scan: {count}"));
            *self.unproved.lock().unwrap() += self.late.lock().unwrap().pop().unwrap_or_default();
            Box::pin(std::future::ready(Ok(Unproved { count, examples: Vec::new() })))
        }

        fn sign(&self) -> BoxFuture<'_, Result<(), String>> {
            let answer = match self.refusals.lock().unwrap().pop() {
                Some(refusal) => Err(refusal.to_owned()),
                None => Ok(()),
            };
            if answer.is_ok() {
                *self.unproved.lock().unwrap() = 0;
            }
            self.done.lock().unwrap().push(format!("sign: {answer:?}"));
            Box::pin(std::future::ready(answer))
        }
    }

    /// Trusts after this many reports.
    struct Trusting {
        after: Mutex<Option<usize>>,
        told: Mutex<Vec<String>>,
    }

    impl Operators for Trusting {
        fn report<'a>(&'a self, scan: &'a ScanResult) -> BoxFuture<'a, bool> {
            self.told.lock().unwrap().push(scan.obstacle());
            let mut after = self.after.lock().unwrap();
            let trusted = *after == Some(0);
            *after = after.map(|left| left.saturating_sub(1));
            Box::pin(std::future::ready(trusted))
        }
    }

    /// Starts with this many objects. Returns the calls of an hour, and whether the key may be
    /// enforced.
    async fn within_an_hour(
        cluster: &Cluster,
        after: Option<usize>,
    ) -> (String, bool, Vec<String>) {
        let operators = Trusting { after: Mutex::new(after), told: Mutex::default() };
        let settled = tokio::time::timeout(
            Duration::from_secs(3600),
            settle(cluster, &operators, Pace::default()),
        );
        let settled = settled.await.is_ok();
        let mut done = cluster.done.lock().unwrap().clone();
        done.dedup();
        let mut told = operators.told.into_inner().unwrap();
        told.dedup();
        (done.join(", "), settled, told)
    }

    #[tokio::test(start_paused = true)]
    async fn key_is_enforced_once_all_is_proved() {
        let two = "2 objects have this hub's marks and no proof";
        for (case, unproved, late, refusals, after, done, settled, told) in [
            ("nothing marked", 0, vec![], vec![], None, "scan: 0", true, vec![String::new()]),
            (
                "unproved, nobody trusts",
                2,
                vec![],
                vec![],
                None,
                "scan: 2",
                false,
                vec![two.to_owned()],
            ),
            (
                "unproved, trusted",
                2,
                vec![],
                vec![],
                Some(1),
                "scan: 2, sign: Ok(()), scan: 0",
                true,
                vec![two.to_owned()],
            ),
            (
                "an earlier process makes two more",
                0,
                vec![2],
                vec![],
                None,
                "scan: 0, scan: 2",
                false,
                vec![String::new(), two.to_owned()],
            ),
            (
                "it makes two more after the first signing",
                2,
                vec![2, 0],
                vec![],
                Some(0),
                "scan: 2, sign: Ok(()), scan: 0",
                true,
                vec![two.to_owned()],
            ),
            (
                "the account may not sign at first",
                2,
                vec![],
                vec!["403", "403"],
                Some(0),
                r#"scan: 2, sign: Err("403"), scan: 2, sign: Err("403"), scan: 2, sign: Ok(()), scan: 0"#,
                true,
                vec![two.to_owned(), "403".into(), two.to_owned(), "403".into(), two.to_owned()],
            ),
        ] {
            let cluster = Cluster {
                unproved: Mutex::new(unproved),
                late: Mutex::new(late),
                refusals: Mutex::new(refusals),
                done: Mutex::default(),
            };
            let (was_done, is_settled, was_told) = within_an_hour(&cluster, after).await;
            let mut told = [told, vec![String::new(); usize::from(settled)]].concat();
            told.dedup();
            assert_eq!((was_done.as_str(), is_settled, was_told), (done, settled, told), "{case}");
        }
    }

    /// The second pass signs objects that appear after the first.
    #[tokio::test(start_paused = true)]
    async fn late_creations_are_signed_by_second_pass() {
        struct Late(Cluster);
        impl MarkedObjects for Late {
            fn scan(&self) -> BoxFuture<'_, Result<Unproved, String>> {
                self.0.scan()
            }

            fn sign(&self) -> BoxFuture<'_, Result<(), String>> {
                Box::pin(async {
                    self.0.sign().await?;
                    *self.0.unproved.lock().unwrap() =
                        self.0.late.lock().unwrap().pop().unwrap_or_default();
                    Ok(())
                })
            }
        }
        let late = Late(Cluster { unproved: Mutex::new(2), ..Cluster::default() });
        // The first scan takes one of these, the first signing the next.
        *late.0.late.lock().unwrap() = vec![1, 0];
        let operators = Trusting { after: Mutex::new(Some(0)), told: Mutex::default() };
        settle(&late, &operators, Pace::default()).await;
        let done = late.0.done.lock().unwrap().join(", ");
        assert_eq!(done, "scan: 2, sign: Ok(()), scan: 1, sign: Ok(())");
    }
}
