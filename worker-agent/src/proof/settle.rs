//! How a cluster's key comes into force. Until it has, marks alone make a copy, as before there were proofs: what runs goes on, and
//! fences hold.
//!
//! The key is in force once no marked object is without a proof. Where there are such objects, operators have to say that they are
//! the hub's. Then all are signed first.

use std::time::Duration;

use futures::future::BoxFuture;

use super::Unproved;

/// How long each step takes.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// After this time no creation that an earlier process has sent can still happen.
    pub late: Duration,
    /// Between two tries.
    pub again: Duration,
}

impl Default for Pace {
    /// An API server gives a request up after 60 seconds, where its administrator has not changed that.
    fn default() -> Self {
        Self { late: Duration::from_secs(75), again: Duration::from_secs(10) }
    }
}

/// The marked objects of a cluster.
pub trait Marked: Send + Sync {
    /// Lists the marked objects without a proof.
    fn look(&self) -> BoxFuture<'_, Result<Unproved, String>>;

    /// Signs them all.
    fn sign(&self) -> BoxFuture<'_, Result<(), String>>;
}

/// The result of a look at the marked objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// These objects have marks and no proof.
    Found(Unproved),
    /// The look failed, and why.
    Failed(String),
}

impl Look {
    /// Why the key is not in force, for a message; empty: nothing is in its way.
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
    /// Tells them what was found. Whether they have said to trust what is there.
    fn tell<'a>(&'a self, look: &'a Look) -> BoxFuture<'a, bool>;
}

/// Returns when the key may be brought into force. A failure leaves all as it was.
pub async fn settle(marked: &dyn Marked, operators: &dyn Operators, pace: Pace) {
    loop {
        match round(marked, operators, pace).await {
            Ok(true) => {
                operators.tell(&Look::Found(Unproved::default())).await;
                return;
            }
            Ok(false) => {}
            Err(error) => {
                operators.tell(&Look::Failed(error)).await;
            }
        }
        tokio::time::sleep(pace.again).await;
    }
}

/// Whether every marked object has its proof.
async fn round(marked: &dyn Marked, operators: &dyn Operators, pace: Pace) -> Result<bool, String> {
    let found = marked.look().await?;
    let some = found.count > 0;
    let trusted = operators.tell(&Look::Found(found)).await;
    if some && !trusted {
        return Ok(false);
    }
    if some {
        marked.sign().await?;
    }
    tokio::time::sleep(pace.late).await;
    // Late creations of an earlier process have happened by now. This process signs each copy that it creates.
    let late = marked.look().await?;
    if late.count == 0 {
        return Ok(true);
    }
    if !trusted {
        operators.tell(&Look::Found(late)).await;
        return Ok(false);
    }
    marked.sign().await.map(|()| true)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Objects without a proof, as they come; and what was done.
    #[derive(Default)]
    struct Cluster {
        unproved: Mutex<usize>,
        /// Made by an earlier process, between the first look and the second.
        late: Mutex<Vec<usize>>,
        /// The answers of signing, in turn; then signing works.
        refusals: Mutex<Vec<&'static str>>,
        done: Mutex<Vec<String>>,
    }

    impl Marked for Cluster {
        fn look(&self) -> BoxFuture<'_, Result<Unproved, String>> {
            let count = *self.unproved.lock().unwrap();
            self.done.lock().unwrap().push(format!("look: {count}"));
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

    /// They trust once they have been told so often.
    struct Trusting {
        after: Mutex<Option<usize>>,
        told: Mutex<Vec<String>>,
    }

    impl Operators for Trusting {
        fn tell<'a>(&'a self, look: &'a Look) -> BoxFuture<'a, bool> {
            self.told.lock().unwrap().push(look.obstacle());
            let mut after = self.after.lock().unwrap();
            let trusted = *after == Some(0);
            *after = after.map(|left| left.saturating_sub(1));
            Box::pin(std::future::ready(trusted))
        }
    }

    /// Begins with so many objects; what was done within an hour, and whether the key may be in force.
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
    async fn key_comes_into_force_once_all_is_proved() {
        let two = "2 objects have this hub's marks and no proof";
        for (case, unproved, late, refusals, after, done, settled, told) in [
            ("nothing marked", 0, vec![], vec![], None, "look: 0", true, vec![String::new()]),
            (
                "unproved, nobody trusts",
                2,
                vec![],
                vec![],
                None,
                "look: 2",
                false,
                vec![two.to_owned()],
            ),
            (
                "unproved, trusted",
                2,
                vec![],
                vec![],
                Some(1),
                "look: 2, sign: Ok(()), look: 0",
                true,
                vec![two.to_owned()],
            ),
            (
                "an earlier process makes two more",
                0,
                vec![2],
                vec![],
                None,
                "look: 0, look: 2",
                false,
                vec![String::new(), two.to_owned()],
            ),
            (
                "it makes two more after the first signing",
                2,
                vec![2, 0],
                vec![],
                Some(0),
                "look: 2, sign: Ok(()), look: 0",
                true,
                vec![two.to_owned()],
            ),
            (
                "the account may not sign at first",
                2,
                vec![],
                vec!["403", "403"],
                Some(0),
                r#"look: 2, sign: Err("403"), look: 2, sign: Err("403"), look: 2, sign: Ok(()), look: 0"#,
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

    /// The second pass signs objects that come after the first.
    #[tokio::test(start_paused = true)]
    async fn late_creations_are_signed_by_second_pass() {
        struct Late(Cluster);
        impl Marked for Late {
            fn look(&self) -> BoxFuture<'_, Result<Unproved, String>> {
                self.0.look()
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
        // The first look takes one of these, the first signing the next.
        *late.0.late.lock().unwrap() = vec![1, 0];
        let operators = Trusting { after: Mutex::new(Some(0)), told: Mutex::default() };
        settle(&late, &operators, Pace::default()).await;
        let done = late.0.done.lock().unwrap().join(", ");
        assert_eq!(done, "look: 2, sign: Ok(()), look: 1, sign: Ok(())");
    }
}
