//! What a request asks of a tree: levels, slices, and how strictly.

use super::failure::Failure;
use super::tree::Tree;
use crate::{Name, SliceLayer, TopologyRequest};

/// A request in terms of one tree.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// How many worker pods.
    pub(super) count: i32,
    /// How many pods are a slice.
    pub(super) size: i32,
    /// 1 if a leader comes with the workers.
    pub(super) leaders: i32,
    pub(super) required: bool,
    pub(super) unconstrained: bool,
    /// The smallest domains that do are taken, instead of the fewest.
    pub(super) least_free: bool,
    /// The level that is asked for.
    pub(super) level: usize,
    /// The level of whole slices.
    pub(super) slice_level: usize,
    /// Below the slice level, pods come in multiples of this by level; 0 does not restrict.
    inner: Vec<i32>,
    /// The layers with their levels, if there is more than one.
    pub(super) layers: Vec<(SliceLayer, usize)>,
}

/// What kind of request one is, by Kueue's rules.
pub(super) struct Kind<'a> {
    request: Option<&'a TopologyRequest>,
    /// It does not ask for a topology itself, and its queue has no other flavors.
    implied: bool,
}

impl<'a> Kind<'a> {
    pub(super) fn new(request: Option<&'a TopologyRequest>, implied: bool) -> Self {
        Self { request, implied }
    }

    fn slices_only(&self) -> bool {
        self.request.is_some_and(|request| {
            request.required.is_none()
                && request.preferred.is_none()
                && !request.layers().is_empty()
        })
    }

    pub(super) fn required(&self) -> bool {
        self.request.is_some_and(|request| request.required.is_some())
    }

    fn unconstrained(&self) -> bool {
        let asked = self.request.is_some_and(|request| request.unconstrained == Some(true));
        asked || self.implied || self.slices_only()
    }

    /// The key of the level that is searched.
    pub(super) fn level<'t>(&self, tree: &'t Tree) -> Option<&'t Name>
    where
        'a: 't,
    {
        let named = self
            .request
            .and_then(|request| request.required.as_ref().or(request.preferred.as_ref()));
        let unconstrained = self.request.is_some_and(|request| request.unconstrained == Some(true));
        match named {
            Some(level) => Some(level),
            None if self.slices_only() => tree.levels.first(),
            None if unconstrained || self.implied => tree.levels.last(),
            None => None,
        }
    }
}

/// Whether a tree has all levels that a request names.
pub(crate) fn has_levels(tree: &Tree, request: &TopologyRequest) -> bool {
    let level = Kind::new(Some(request), false).level(tree);
    level.is_some_and(|level| tree.level(level).is_some())
        && request.layers().iter().all(|layer| tree.level(&layer.topology).is_some())
}

/// The pods of a slice; 1 without slices.
pub(super) fn slice_size(layers: &[SliceLayer]) -> Result<i32, Failure> {
    match layers.first() {
        None => Ok(1),
        Some(layer) if layer.size <= 0 => Err(Failure::SliceSizeMissing),
        Some(layer) => Ok(layer.size),
    }
}

impl Plan {
    /// Reads a request. `mixed`: Kueue's `TASProfileMixed`.
    pub(super) fn new(
        tree: &Tree,
        kind: &Kind<'_>,
        count: i32,
        leaders: i32,
        mixed: bool,
    ) -> Result<Self, Failure> {
        let layers = kind.request.map(TopologyRequest::layers).unwrap_or_default();
        let size = slice_size(&layers)?;
        let key = kind.level(tree).ok_or(Failure::LevelMissing)?;
        let level = tree.level(key).ok_or_else(|| Failure::LevelUnknown { level: key.clone() })?;
        let slice_level = match layers.first() {
            None => tree.lowest(),
            Some(SliceLayer { topology, .. }) => tree
                .level(topology)
                .ok_or_else(|| Failure::SliceLevelUnknown { level: topology.clone() })?,
        };
        if let Some(layer) = layers.first().filter(|_| level > slice_level) {
            return Err(Failure::SliceAbove { slice: layer.topology.clone(), level: key.clone() });
        }
        let mut plan = Self {
            count,
            size,
            leaders,
            required: kind.required(),
            unconstrained: kind.unconstrained(),
            least_free: kind.unconstrained() && mixed,
            level,
            slice_level,
            inner: vec![0; tree.levels.len()],
            layers: Vec::new(),
        };
        if layers.len() > 1 {
            plan.add_layers(tree, layers)?;
        }
        Ok(plan)
    }

    fn add_layers(&mut self, tree: &Tree, layers: Vec<SliceLayer>) -> Result<(), Failure> {
        let (mut above, mut size) = (self.slice_level, self.size);
        for layer in layers.get(1..).unwrap_or_default() {
            let unknown = || Failure::LayerLevelUnknown { level: layer.topology.clone() };
            let level = tree.level(&layer.topology).ok_or_else(unknown)?;
            if level <= above {
                let parent = tree.levels.get(above).cloned().unwrap_or_default();
                return Err(Failure::LayerNotBelow { level: layer.topology.clone(), parent });
            }
            if layer.size <= 0 || size % layer.size != 0 {
                return Err(Failure::LayerSize { size: layer.size, parent: size });
            }
            for between in self.inner.get_mut(above + 1..=level).unwrap_or_default() {
                *between = layer.size;
            }
            (above, size) = (level, layer.size);
        }
        let with_level = |layer: SliceLayer| Some((tree.level(&layer.topology)?, layer));
        self.layers = layers
            .into_iter()
            .filter_map(with_level)
            .map(|(level, layer)| (layer, level))
            .collect();
        Ok(())
    }

    /// How many slices. Pods beyond whole slices are not placed, as in Kueue.
    pub(super) fn slices(&self) -> i32 {
        self.count / self.size
    }

    /// Of how many pods the multiples are in which domains of a level take them below the slice level.
    pub(super) fn inner(&self, level: usize) -> Option<i32> {
        self.inner.get(level).copied().filter(|size| *size > 0)
    }
}
