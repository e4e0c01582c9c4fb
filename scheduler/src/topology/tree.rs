//! The topology of one flavor: domains by level, with capacity leaves at the lowest level.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::count_cache::{ChangeLog, CountCache};
use super::counts::Change;
use super::resources::{Amounts, bounded};
use crate::{CapacityLeaf, HOSTNAME_LABEL, Name};

/// The label values of a domain and its ancestors, highest level first.
pub(super) type Path = Arc<[Name]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DomainId(u32);

impl Default for DomainId {
    /// Belongs to no tree.
    fn default() -> Self {
        Self(u32::MAX)
    }
}

impl DomainId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn at(index: usize) -> Option<Self> {
        u32::try_from(index).ok().map(Self)
    }
}

#[derive(Debug)]
pub(super) struct Domain {
    pub(super) level: usize,
    pub(super) path: Path,
    pub(super) parent: Option<DomainId>,
    /// Sorted by value.
    pub(super) children: Vec<DomainId>,
    /// Orders the domains of a level by path.
    pub(super) rank: u64,
    /// Only at the lowest level.
    pub(super) leaf: Option<Box<Leaf>>,
}

/// The capacity of a domain of the lowest level.
#[derive(Debug)]
pub(crate) struct Leaf {
    /// The hostname if that is the lowest level, else all values.
    pub(crate) id: Name,
    /// Sources by name. The first one provides labels and taints.
    pub(crate) sources: BTreeMap<Name, Arc<CapacityLeaf>>,
    /// Without the usage of pods outside topology-aware scheduling.
    pub(super) capacity: Amounts,
    /// Usage of workloads.
    pub(super) used: Amounts,
}

impl Leaf {
    /// `empty`: ignore the usage of workloads.
    pub(super) fn free(&self, number: usize, empty: bool) -> i64 {
        let used = if empty { 0 } else { self.used.get(number) };
        bounded(self.capacity.get(number) - used)
    }

    /// The source that provides labels and taints.
    pub(super) fn first(&self) -> Option<&CapacityLeaf> {
        self.sources.values().next().map(|source| &**source)
    }
}

/// The distance between ranks of domains that are added in order.
const STRIDE: u64 = 1 << 32;

#[derive(Debug)]
pub(crate) struct TopologyTree {
    pub(crate) topology: Name,
    /// Label keys, highest level first.
    pub(crate) levels: Vec<Name>,
    domains: Vec<Option<Domain>>,
    vacant: Vec<DomainId>,
    /// The domains of each level in path order.
    by_level: Vec<Vec<DomainId>>,
    leaves: BTreeMap<Name, DomainId>,
    pub(super) log: ChangeLog,
    pub(super) cache: CountCache,
}

impl TopologyTree {
    pub(crate) fn new(topology: Name, levels: Vec<Name>) -> Self {
        Self {
            topology,
            domains: Vec::new(),
            vacant: Vec::new(),
            by_level: vec![Vec::new(); levels.len()],
            leaves: BTreeMap::new(),
            log: ChangeLog::default(),
            cache: CountCache::default(),
            levels,
        }
    }

    /// Whether each leaf is a single host.
    pub(crate) fn is_by_host(&self) -> bool {
        self.levels.last().is_some_and(|level| &**level == HOSTNAME_LABEL)
    }

    pub(crate) fn lowest(&self) -> usize {
        self.levels.len().saturating_sub(1)
    }

    pub(crate) fn level(&self, key: &str) -> Option<usize> {
        self.levels.iter().position(|level| &**level == key)
    }

    pub(super) fn domain(&self, id: DomainId) -> Option<&Domain> {
        self.domains.get(id.index())?.as_ref()
    }

    fn domain_mut(&mut self, id: DomainId) -> Option<&mut Domain> {
        self.domains.get_mut(id.index())?.as_mut()
    }

    pub(super) fn children(&self, id: DomainId) -> &[DomainId] {
        self.domain(id).map_or(&[], |domain| &domain.children)
    }

    pub(super) fn rank(&self, id: DomainId) -> u64 {
        self.domain(id).map_or(u64::MAX, |domain| domain.rank)
    }

    /// Greater than the index of every domain.
    pub(super) fn size(&self) -> usize {
        self.domains.len()
    }

    /// In path order.
    pub(crate) fn at_level(&self, level: usize) -> impl Iterator<Item = DomainId> {
        self.of_level(level).iter().copied()
    }

    fn of_level(&self, level: usize) -> &[DomainId] {
        self.by_level.get(level).map_or(&[], |ids| ids)
    }

    /// In no meaningful order.
    pub(super) fn leaves(&self) -> impl Iterator<Item = (DomainId, &Leaf)> {
        let all = self.domains.iter().enumerate();
        all.filter_map(|(index, domain)| {
            Some((DomainId::at(index)?, domain.as_ref()?.leaf.as_deref()?))
        })
    }

    pub(super) fn leaf_id(&self, id: &str) -> Option<DomainId> {
        self.leaves.get(id).copied()
    }

    pub(crate) fn leaf(&self, id: &str) -> Option<&Leaf> {
        self.leaf_at(self.leaf_id(id)?)
    }

    pub(super) fn leaf_at(&self, id: DomainId) -> Option<&Leaf> {
        self.domain(id)?.leaf.as_deref()
    }

    /// For a change, which the log keeps.
    fn leaf_mut(&mut self, id: &str, change: Change) -> Option<&mut Leaf> {
        let id = self.leaf_id(id)?;
        self.log.push(id, change);
        self.domain_mut(id)?.leaf.as_deref_mut()
    }

    /// The ancestor at `level`, or the domain itself.
    pub(super) fn ancestor(&self, id: DomainId, level: usize) -> Option<DomainId> {
        let mut at = id;
        while self.domain(at)?.level > level {
            at = self.domain(at)?.parent?;
        }
        Some(at)
    }

    /// The leaf id and path for these labels. `None` if the label of a level is missing.
    pub(crate) fn place_of(&self, labels: &BTreeMap<String, String>) -> Option<(Name, Path)> {
        let path: Option<Path> = self
            .levels
            .iter()
            .map(|level| labels.get(&**level).map(|v| v.as_str().into()))
            .collect();
        let path = path.filter(|path| !path.is_empty())?;
        let id = match path.last() {
            Some(host) if self.is_by_host() => host.clone(),
            _ => joined(&path),
        };
        Some((id, path))
    }

    /// Adds the capacity of a source. `used`: usage of workloads, for a leaf that is new.
    pub(crate) fn add_source(
        &mut self,
        source: &Arc<CapacityLeaf>,
        capacity: &Amounts,
        used: impl Fn(&str) -> Amounts,
    ) {
        let Some((id, path)) = self.place_of(&source.labels) else { return };
        match self.leaf_mut(&id, Change::Whole) {
            Some(leaf) => {
                leaf.capacity.add_all(capacity, 1);
                leaf.sources.insert(source.name.clone(), source.clone());
                self.settle(&id);
            }
            None => {
                let sources = BTreeMap::from([(source.name.clone(), source.clone())]);
                let used = used(&id);
                self.insert_leaf(
                    &path,
                    Box::new(Leaf { id, sources, capacity: capacity.clone(), used }),
                );
            }
        }
    }

    /// Reverts [`TopologyTree::add_source`].
    pub(crate) fn remove_source(&mut self, source: &CapacityLeaf, capacity: &Amounts) {
        let Some((id, _)) = self.place_of(&source.labels) else { return };
        let Some(leaf) = self.leaf_mut(&id, Change::Whole) else { return };
        if leaf.sources.remove(&source.name).is_none() {
            return;
        }
        leaf.capacity.add_all(capacity, -1);
        if leaf.sources.is_empty() {
            self.remove_leaf(&id);
        } else {
            self.settle(&id);
        }
    }

    /// Adds usage of pods outside topology-aware scheduling.
    pub(crate) fn shift_non_tas_usage(&mut self, id: &str, amounts: &Amounts, times: i128) {
        if let Some(leaf) = self.leaf_mut(id, Change::Whole) {
            leaf.capacity.add_all(amounts, -times);
        }
    }

    /// Adds usage of workloads. Ignored if the leaf does not exist.
    pub(crate) fn shift_used(&mut self, id: &str, amounts: &Amounts, times: i128) {
        if let Some(leaf) = self.leaf_mut(id, Change::Usage) {
            leaf.used.add_all(amounts, times);
        }
    }

    /// Moves a leaf to the path of its first source.
    fn settle(&mut self, id: &Name) {
        let at = self.leaf_id(id).and_then(|at| self.domain(at));
        let Some((domain, source)) =
            at.and_then(|domain| Some((domain, domain.leaf.as_deref()?.first()?)))
        else {
            return;
        };
        let Some((_, path)) =
            self.place_of(&source.labels).filter(|(_, path)| *path != domain.path)
        else {
            return;
        };
        if let Some(leaf) = self.remove_leaf(id) {
            self.insert_leaf(&path, leaf);
        }
    }

    fn insert_leaf(&mut self, path: &Path, leaf: Box<Leaf>) {
        let mut parent = None;
        for level in 0..path.len() {
            parent = Some(self.domain_or_new(path.get(..=level).unwrap_or_default(), parent));
        }
        let Some(at) = parent else { return };
        self.leaves.insert(leaf.id.clone(), at);
        self.log.push(at, Change::Whole);
        if let Some(domain) = self.domain_mut(at) {
            domain.leaf = Some(leaf);
        }
    }

    /// The domain of a path; a new one if it does not exist.
    fn domain_or_new(&mut self, path: &[Name], parent: Option<DomainId>) -> DomainId {
        let level = path.len().saturating_sub(1);
        let place = self.place_in_level(level, path);
        let there = self.of_level(level).get(place).copied();
        if let Some(id) = there
            && self.domain(id).is_some_and(|domain| *domain.path == *path)
        {
            return id;
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.domains.push(None);
            DomainId(u32::try_from(self.domains.len() - 1).unwrap_or(u32::MAX))
        });
        let rank = self.rank_for(level, place);
        if let Some(ids) = self.by_level.get_mut(level) {
            ids.insert(place, id);
        }
        if let Some(vacant) = self.domains.get_mut(id.index()) {
            let (path, children) = (path.into(), Vec::new());
            *vacant = Some(Domain { level, path, parent, children, rank: 0, leaf: None });
        }
        match (rank, self.domain_mut(id)) {
            (Some(rank), Some(domain)) => domain.rank = rank,
            _ => self.respread_ranks(level),
        }
        if let Some(parent) = parent {
            let rank = self.rank(id);
            let at = self.children(parent).partition_point(|child| self.rank(*child) < rank);
            if let Some(parent) = self.domain_mut(parent) {
                parent.children.insert(at, id);
            }
        }
        id
    }

    /// The position of a path among the domains of its level.
    fn place_in_level(&self, level: usize, path: &[Name]) -> usize {
        let before = |id: &DomainId| self.domain(*id).is_some_and(|domain| *domain.path < *path);
        self.of_level(level).partition_point(before)
    }

    /// A rank for a new domain at this position of its level. `None` if no integer is left between
    /// its neighbours.
    fn rank_for(&self, level: usize, place: usize) -> Option<u64> {
        let (below, above) = self.of_level(level).split_at_checked(place)?;
        let before = below.last().map_or(0, |id| self.rank(*id));
        let rank = match above.first() {
            Some(after) => before.midpoint(self.rank(*after)),
            None => before.checked_add(STRIDE)?,
        };
        (rank > before).then_some(rank)
    }

    /// Spreads the ranks of a level evenly. Rarely needed: once in many insertions at one position.
    fn respread_ranks(&mut self, level: usize) {
        let ids: Vec<_> = self.at_level(level).collect();
        let mut rank = 0;
        for id in ids {
            rank += STRIDE;
            if let Some(domain) = self.domain_mut(id) {
                domain.rank = rank;
            }
        }
    }

    /// Removes a leaf, and ancestors that have nothing else.
    fn remove_leaf(&mut self, id: &str) -> Option<Box<Leaf>> {
        let mut at = self.leaves.remove(id)?;
        let leaf = self.domain_mut(at)?.leaf.take();
        while let Some(domain) =
            self.domain(at).filter(|domain| domain.children.is_empty() && domain.leaf.is_none())
        {
            let (level, parent, rank) = (domain.level, domain.parent, domain.rank);
            let position = self.place_in_level(level, &domain.path);
            if let Some(ids) = self.by_level.get_mut(level)
                && position < ids.len()
            {
                ids.remove(position);
            }
            self.log.push(at, Change::Whole);
            if let Some(place) = self.domains.get_mut(at.index()) {
                *place = None;
            }
            self.vacant.push(at);
            let Some(parent) = parent else { break };
            self.log.push(parent, Change::Whole);
            // The removed domain has no rank any more, so its own id ends the search.
            let place = self
                .children(parent)
                .partition_point(|child| *child != at && self.rank(*child) < rank);
            if let Some(parent) = self.domain_mut(parent) {
                parent.children.remove(place);
            }
            at = parent;
        }
        leaf
    }
}

/// The name of a domain by its values, joined as in Kueue.
pub(crate) fn joined(values: &[Name]) -> Name {
    match values {
        [only] => only.clone(),
        many => many.iter().map(|value| &**value).collect::<Vec<_>>().join(",").into(),
    }
}
