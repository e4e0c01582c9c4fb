//! Translates a topology request to one tree: levels, slices and strictness.

use super::failure::PlacementFailure;
use super::tree::TopologyTree;
use crate::{Name, SliceLayer, TopologyRequest};

#[derive(Clone, Debug)]
pub(super) struct PlacementPlan {
    /// Worker pods.
    pub(super) count: i32,
    /// Pods per slice.
    pub(super) size: i32,
    /// 1 if a leader comes with the workers, else 0.
    pub(super) leaders: i32,
    pub(super) required: bool,
    pub(super) unconstrained: bool,
    /// Prefer the domains with the least free capacity to the fewest domains.
    pub(super) least_free: bool,
    /// The requested level. 0 is the highest.
    pub(super) level: usize,
    /// The level that holds whole slices.
    pub(super) slice_level: usize,
    /// By level below the slice level: pods come in multiples of this. 0 is no restriction.
    inner: Vec<i32>,
    /// With their levels, if there is more than one layer.
    pub(super) layers: Vec<(SliceLayer, usize)>,
}

/// The kind of a request, by Kueue's rules.
pub(super) struct RequestKind<'a> {
    request: Option<&'a TopologyRequest>,
    /// No topology request, in a queue whose flavors all have a topology.
    implied: bool,
}

impl<'a> RequestKind<'a> {
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

    /// The label key of the searched level.
    pub(super) fn level<'t>(&self, tree: &'t TopologyTree) -> Option<&'t Name>
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
pub(crate) fn has_levels(tree: &TopologyTree, request: &TopologyRequest) -> bool {
    let level = RequestKind::new(Some(request), false).level(tree);
    level.is_some_and(|level| tree.level(level).is_some())
        && request.layers().iter().all(|layer| tree.level(&layer.topology).is_some())
}

/// Pods per slice; 1 without slices.
pub(super) fn slice_size(layers: &[SliceLayer]) -> Result<i32, PlacementFailure> {
    match layers.first() {
        None => Ok(1),
        Some(layer) if layer.size <= 0 => Err(PlacementFailure::SliceSizeMissing),
        Some(layer) => Ok(layer.size),
    }
}

impl PlacementPlan {
    /// `mixed`: Kueue's gate `TASProfileMixed`.
    pub(super) fn new(
        tree: &TopologyTree,
        kind: &RequestKind<'_>,
        count: i32,
        leaders: i32,
        mixed: bool,
    ) -> Result<Self, PlacementFailure> {
        let layers = kind.request.map(TopologyRequest::layers).unwrap_or_default();
        let size = slice_size(&layers)?;
        let key = kind.level(tree).ok_or(PlacementFailure::LevelMissing)?;
        let level =
            tree.level(key).ok_or_else(|| PlacementFailure::LevelUnknown { level: key.clone() })?;
        let slice_level = match layers.first() {
            None => tree.lowest(),
            Some(SliceLayer { topology, .. }) => tree
                .level(topology)
                .ok_or_else(|| PlacementFailure::SliceLevelUnknown { level: topology.clone() })?,
        };
        if let Some(layer) = layers.first().filter(|_| level > slice_level) {
            return Err(PlacementFailure::SliceAbove {
                slice: layer.topology.clone(),
                level: key.clone(),
            });
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

    fn add_layers(
        &mut self,
        tree: &TopologyTree,
        layers: Vec<SliceLayer>,
    ) -> Result<(), PlacementFailure> {
        let (mut above, mut size) = (self.slice_level, self.size);
        for layer in layers.get(1..).unwrap_or_default() {
            let unknown = || PlacementFailure::LayerLevelUnknown { level: layer.topology.clone() };
            let level = tree.level(&layer.topology).ok_or_else(unknown)?;
            if level <= above {
                let parent = tree.levels.get(above).cloned().unwrap_or_default();
                return Err(PlacementFailure::LayerNotBelow {
                    level: layer.topology.clone(),
                    parent,
                });
            }
            if layer.size <= 0 || size % layer.size != 0 {
                return Err(PlacementFailure::LayerSize { size: layer.size, parent: size });
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

    /// Whole slices. As in Kueue, the remaining pods are not placed.
    pub(super) fn slices(&self) -> i32 {
        self.count / self.size
    }

    /// By level; 0 is no restriction.
    pub(super) fn inner_sizes(&self) -> &[i32] {
        &self.inner
    }

    /// The multiple of pods that a domain of this level takes, below the slice level.
    pub(super) fn inner(&self, level: usize) -> Option<i32> {
        self.inner.get(level).copied().filter(|size| *size > 0)
    }
}
