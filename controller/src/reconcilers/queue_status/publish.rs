//! Writing a status that has news in it: what matters at once, mere figures at their pace.

use std::fmt::Debug;

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use super::{outcome, pace::Pace};
use crate::context::Context;
use switchyard_platform::{
    store::Key,
    work_queue::Outcome,
    write::{Target, WriteError},
};

/// A status as it reads and as it should.
pub(super) struct Change<'a, S> {
    /// None if the object has no status at all: then it gets one, even if all of it is zero.
    pub(super) before: Option<&'a S>,
    pub(super) after: &'a S,
    /// More than figures changed: it is written at once.
    pub(super) urgent: bool,
}

/// Writes the difference, or says how long mere figures still have to wait.
pub(super) async fn publish<K, S>(
    ctx: &Context,
    pace: &Pace,
    key: Key,
    target: &Target<'_, K>,
    change: Change<'_, S>,
) -> Outcome
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + 'static,
    S: Serialize + PartialEq,
{
    if change.before == Some(change.after) {
        return Outcome::Done;
    }
    if !change.urgent
        && let Some(wait) = pace.wait(&key)
    {
        return Outcome::Requeue(wait);
    }
    match write(ctx, target, &change).await {
        Ok(true) => {
            pace.written(key);
            Outcome::Done
        }
        result => outcome(&K::kind(&()), &key, result.map(drop)),
    }
}

async fn write<K, S>(
    ctx: &Context,
    target: &Target<'_, K>,
    change: &Change<'_, S>,
) -> Result<bool, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + 'static,
    S: Serialize,
{
    let before = change.before.map(serde_json::to_value).transpose()?.unwrap_or_default();
    Ok(target.status(ctx, &before, &serde_json::to_value(change.after)?).await?.is_some())
}
