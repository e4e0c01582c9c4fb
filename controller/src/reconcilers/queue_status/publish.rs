//! Writes a changed status: conditions at once, figures at their pace.

use std::fmt::Debug;

use kube::Resource;
use serde::{Serialize, de::DeserializeOwned};

use super::{outcome, pace::FigurePace};
use crate::context::Context;
use switchyard_platform::{
    store::Key,
    work_queue::Outcome,
    write::{Target, WriteError},
};

/// A status and its desired value.
pub(super) struct Change<'a, S> {
    /// `None` if the object has no status yet. Then it is written even if all figures are zero.
    pub(super) before: Option<&'a S>,
    pub(super) after: &'a S,
    /// More than figures changed, so it is written at once.
    pub(super) urgent: bool,
}

/// Writes the difference, or returns how long figures must still wait.
pub(super) async fn publish<K, S>(
    ctx: &Context,
    pace: &FigurePace,
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
