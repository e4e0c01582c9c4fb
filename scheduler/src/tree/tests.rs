//! Table tests of the quota arithmetic, and properties of the tree.

use proptest::prelude::*;

use super::*;
use crate::flavor_resource::{FlavorResource, FlavorResources};
use crate::ids::NodeId;
use crate::{Amount, Name, Quota};

fn fr() -> FlavorResource {
    FlavorResources::default().intern(&"default".into(), &"cpu".into())
}

/// Nominal quota, borrowing limit and lending limit; -1 is no limit.
fn quota(nominal: i64, borrow: i64, lend: i64) -> Quota {
    let limit = |limit: i64| (limit >= 0).then(|| Amount::new(limit));
    Quota {
        nominal: Amount::new(nominal),
        borrowing_limit: limit(borrow),
        lending_limit: limit(lend),
    }
}

/// Cohorts as (name, parent, quota) and ClusterQueues as (cohort, quota, usage).
type Shape<'a> = (&'a [(&'a str, &'a str, Quota)], &'a [(&'a str, Quota, i64)]);

fn build((cohorts, queues): Shape<'_>) -> (QuotaTree, Vec<NodeId>) {
    let mut tree = QuotaTree::default();
    for (name, parent, quota) in cohorts {
        let parent = (!parent.is_empty()).then(|| Name::from(*parent));
        tree.put_cohort(&Name::from(*name), parent.as_ref(), &[(fr(), *quota)]);
    }
    let mut ids = Vec::new();
    for (number, (cohort, quota, usage)) in queues.iter().enumerate() {
        let id = tree.add_queue(format!("q{number}").into());
        let cohort = (!cohort.is_empty()).then(|| Name::from(*cohort));
        tree.place_queue(id, cohort.as_ref(), &[(fr(), *quota)]);
        tree.set_active(id, true);
        tree.shift(id, fr(), i128::from(*usage));
        ids.push(id);
    }
    (tree, ids)
}

#[test]
fn available_and_potential_follow_the_shape() {
    let none = || quota(0, -1, -1);
    // (case, cohorts, queues, for each queue: available and potential)
    type Case<'a> =
        (&'a str, &'a [(&'a str, &'a str, Quota)], &'a [(&'a str, Quota, i64)], &'a [(i64, i64)]);
    let cases: &[Case<'_>] = &[
        ("a queue alone", &[], &[("", quota(10, -1, -1), 4)], &[(6, 10)]),
        ("a queue alone that is over its quota", &[], &[("", quota(10, -1, -1), 14)], &[(-4, 10)]),
        (
            "all of a cohort may be borrowed",
            &[],
            &[("c", quota(10, -1, -1), 12), ("c", quota(5, -1, -1), 1)],
            &[(2, 15), (2, 15)],
        ),
        (
            "a borrowing limit",
            &[],
            &[("c", quota(10, 2, -1), 3), ("c", quota(5, -1, -1), 0)],
            &[(9, 12), (12, 15)],
        ),
        (
            "a borrowing limit of nothing",
            &[],
            &[("c", quota(10, 0, -1), 3), ("c", quota(5, -1, -1), 0)],
            &[(7, 10), (12, 15)],
        ),
        (
            "a lending limit keeps the rest for the owner",
            &[],
            &[("c", quota(10, -1, 4), 0), ("c", quota(5, -1, -1), 0)],
            &[(15, 15), (9, 9)],
        ),
        (
            "the owner uses what it keeps first",
            &[],
            &[("c", quota(10, -1, 4), 7), ("c", quota(5, -1, -1), 0)],
            &[(8, 15), (8, 9)],
        ),
        (
            "a cohort's own quota is everybody's",
            &[("c", "", quota(8, -1, -1))],
            &[("c", quota(1, -1, -1), 3)],
            &[(6, 9)],
        ),
        (
            "limits on every level",
            &[("left", "root", quota(0, 3, -1)), ("right", "root", quota(0, -1, 4))],
            &[("left", quota(2, -1, -1), 0), ("right", quota(10, -1, -1), 0)],
            &[(5, 5), (12, 12)],
        ),
        (
            "a cohort in debt lends nothing",
            &[("c", "", none())],
            &[("c", quota(2, -1, -1), 9), ("c", quota(4, -1, -1), 0)],
            &[(-3, 6), (-3, 6)],
        ),
        (
            "a lending limit above the quota of the subtree",
            &[("c", "root", quota(3, -1, 100))],
            &[("c", quota(2, -1, -1), 0), ("root", none(), 1)],
            &[(4, 5), (4, 5)],
        ),
    ];
    for (case, cohorts, queues, expected) in cases {
        let (tree, ids) = build((cohorts, queues));
        let got: Vec<_> = ids
            .iter()
            .map(|id| (tree.available(*id, fr()).get(), tree.potential(*id, fr()).get()))
            .collect();
        assert_eq!(&got, expected, "{case}");
    }
}

#[test]
fn usage_above_unlimited_quota_is_carried_upwards() {
    let most = i64::MAX - 1;
    let (mut tree, ids) = build((
        &[
            ("a", "root", quota(0, -1, 0)),
            ("b", "a", quota(i64::MAX, -1, -1)),
            ("root", "", quota(most, -1, -1)),
        ],
        &[("a", quota(0, -1, -1), i64::MAX)],
    ));
    assert_eq!(tree.available(ids[0], fr()).get(), most);
    tree.shift(ids[0], fr(), i128::from(most));
    assert_eq!(tree.available(ids[0], fr()), Amount::ZERO);
}

#[test]
fn unlimited_quota_is_unlimited_for_ancestors() {
    let (mut tree, ids) = build((
        &[("c", "root", quota(0, -1, -1))],
        &[("c", quota(i64::MAX, -1, -1), 5), ("root", quota(1, -1, -1), 0)],
    ));
    assert_eq!(tree.available(ids[1], fr()), Amount::UNLIMITED);
    assert_eq!(tree.potential(ids[0], fr()), Amount::UNLIMITED);
    tree.shift(ids[0], fr(), i128::from(i64::MAX) - 6);
    assert_eq!(tree.available(ids[1], fr()), Amount::UNLIMITED);
    // No more than `i64::MAX`.
    for _ in 0..3 {
        tree.shift(ids[0], fr(), i128::from(i64::MAX));
        assert_eq!(tree.available(ids[1], fr()), Amount::ZERO);
    }
    tree.shift(ids[0], fr(), i128::from(i64::MAX) * -3);
    assert_eq!(tree.available(ids[1], fr()), Amount::UNLIMITED);
}

#[test]
fn borrow_height_is_that_of_the_covering_subtree() {
    let cohorts: &[_] = &[("near", "far", quota(0, -1, -1)), ("other", "far", quota(0, -1, -1))];
    let queues: &[_] = &[
        ("near", quota(4, -1, -1), 1),
        ("near", quota(4, -1, -1), 0),
        ("other", quota(4, -1, -1), 0),
    ];
    let (tree, ids) = build((cohorts, queues));
    let height = |amount| tree.borrow_height(ids[0], fr(), Amount::new(amount));
    assert_eq!(height(3), (0, true), "the own quota");
    assert_eq!(height(7), (1, true), "the near cohort, with somebody above to reclaim from");
    assert_eq!(height(11), (2, false), "the far cohort");
    assert_eq!(height(12), (2, false), "nobody has as much");
    let (isolated, ids) = build((&[], &[("", quota(4, -1, -1), 0)]));
    assert_eq!(isolated.borrow_height(ids[0], fr(), Amount::new(9)), (0, false));
}

#[test]
fn inactive_queues_do_not_count_for_the_height() {
    let cohorts: &[_] = &[("near", "far", quota(0, -1, -1))];
    let (mut tree, ids) =
        build((cohorts, &[("far", quota(1, -1, -1), 0), ("near", quota(1, -1, -1), 0)]));
    let height = |tree: &QuotaTree| tree.borrow_height(ids[0], fr(), Amount::new(5)).0;
    assert_eq!(height(&tree), 2);
    tree.set_active(ids[1], false);
    assert_eq!(height(&tree), 1);
}

#[test]
fn cohort_lives_while_something_names_it() {
    let mut tree = QuotaTree::default();
    let id = tree.add_queue("q".into());
    tree.place_queue(id, Some(&"c".into()), &[(fr(), quota(1, -1, -1))]);
    assert!(tree.cohort("c").is_some(), "named by a queue");
    tree.put_cohort(&"c".into(), Some(&"p".into()), &[(fr(), quota(5, -1, -1))]);
    assert_eq!(tree.potential(id, fr()).get(), 6);
    tree.delete_cohort("c");
    assert_eq!(tree.potential(id, fr()).get(), 1, "the node stays without the object's quota");
    assert!(tree.cohort("p").is_none(), "nothing names the parent any more");
    tree.remove_queue(id);
    assert!(tree.cohort("c").is_none());
}

#[test]
fn cycle_isolates_nodes_until_it_is_broken() {
    let (mut tree, ids) = build((
        &[
            ("a", "b", quota(1, -1, -1)),
            ("b", "c", quota(1, -1, -1)),
            ("leaf", "a", quota(1, -1, -1)),
        ],
        &[("leaf", quota(10, -1, -1), 4), ("c", quota(10, -1, -1), 2)],
    ));
    assert_eq!(tree.available(ids[0], fr()).get(), 17);
    tree.put_cohort(&"c".into(), Some(&"leaf".into()), &[]);
    assert!(ids.iter().all(|id| tree.is_cyclic(*id)));
    assert_eq!(tree.available(ids[0], fr()).get(), 6, "it stands alone");
    tree.shift(ids[0], fr(), 1);
    tree.delete_cohort("c");
    assert!(!ids.iter().any(|id| tree.is_cyclic(*id)));
    assert_eq!(tree.available(ids[0], fr()).get(), 16, "usage that changed meanwhile counts");
}

/// One step on a small tree of cohorts c0..c3 and queues q0..q3.
#[derive(Clone, Debug)]
enum Step {
    Cohort { cohort: usize, parent: Option<usize>, quota: Quota },
    DeleteCohort(usize),
    Place { queue: usize, cohort: Option<usize>, quota: Quota },
    Activate { queue: usize, active: bool },
    Use { queue: usize, amount: i64 },
}

fn any_amount() -> impl Strategy<Value = i64> {
    prop_oneof![8 => 0..20_i64, 1 => Just(i64::MAX), 1 => Just(i64::MAX - 1)]
}

fn any_quota() -> impl Strategy<Value = Quota> {
    let limit = || proptest::option::weighted(0.4, any_amount().prop_map(Amount::new));
    (any_amount(), limit(), limit()).prop_map(|(nominal, borrowing_limit, lending_limit)| Quota {
        nominal: Amount::new(nominal),
        borrowing_limit,
        lending_limit,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let parent = || proptest::option::weighted(0.7, 0..4_usize);
    prop_oneof![
        (0..4_usize, parent(), any_quota()).prop_map(|(cohort, parent, quota)| Step::Cohort {
            cohort,
            parent,
            quota
        }),
        (0..4_usize).prop_map(Step::DeleteCohort),
        (0..4_usize, parent(), any_quota()).prop_map(|(queue, cohort, quota)| Step::Place {
            queue,
            cohort,
            quota
        }),
        (0..4_usize, any::<bool>()).prop_map(|(queue, active)| Step::Activate { queue, active }),
        (0..4_usize, any_amount()).prop_map(|(queue, amount)| Step::Use { queue, amount }),
    ]
}

/// Usage, available, potential, cyclic, and the borrowing heights of some amounts.
type Answer = (Amount, Amount, Amount, bool, Vec<(usize, bool)>);

/// A tree and the steps that it took.
struct Played {
    tree: QuotaTree,
    queues: Vec<NodeId>,
    cohorts: [Option<(Option<usize>, Quota)>; 4],
    places: [(Option<usize>, Quota, bool, i128); 4],
}

fn name(number: usize) -> Name {
    format!("c{number}").into()
}

impl Played {
    fn new() -> Self {
        let mut tree = QuotaTree::default();
        let queues = (0..4).map(|number| tree.add_queue(format!("q{number}").into())).collect();
        Self { tree, queues, cohorts: [None; 4], places: [(None, Quota::default(), false, 0); 4] }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Cohort { cohort, parent, quota } => {
                self.tree.put_cohort(&name(*cohort), parent.map(name).as_ref(), &[(fr(), *quota)]);
                self.cohorts[*cohort] = Some((*parent, *quota));
            }
            Step::DeleteCohort(cohort) => {
                self.tree.delete_cohort(&name(*cohort));
                self.cohorts[*cohort] = None;
            }
            Step::Place { queue, cohort, quota } => {
                self.tree.place_queue(
                    self.queues[*queue],
                    cohort.map(name).as_ref(),
                    &[(fr(), *quota)],
                );
                (self.places[*queue].0, self.places[*queue].1) = (*cohort, *quota);
            }
            Step::Activate { queue, active } => {
                self.tree.set_active(self.queues[*queue], *active);
                self.places[*queue].2 = *active;
            }
            Step::Use { queue, amount } => {
                self.tree.shift(self.queues[*queue], fr(), i128::from(*amount));
                self.places[*queue].3 += i128::from(*amount);
            }
        }
    }

    /// The same state built at once.
    fn rebuilt(&self) -> Self {
        let mut fresh = Self::new();
        for (queue, (cohort, quota, active, usage)) in self.places.iter().enumerate() {
            fresh.step(&Step::Place { queue, cohort: *cohort, quota: *quota });
            fresh.step(&Step::Activate { queue, active: *active });
            fresh.tree.shift(fresh.queues[queue], fr(), *usage);
        }
        for (cohort, (parent, quota)) in self
            .cohorts
            .iter()
            .enumerate()
            .filter_map(|(number, cohort)| Some((number, (*cohort)?)))
        {
            fresh.step(&Step::Cohort { cohort, parent, quota });
        }
        fresh
    }

    /// All query results.
    fn answers(&self) -> Vec<Answer> {
        let of = |id: &NodeId| {
            let heights =
                [0, 3, 30].map(|amount| self.tree.borrow_height(*id, fr(), Amount::new(amount)));
            let (available, potential) =
                (self.tree.available(*id, fr()), self.tree.potential(*id, fr()));
            (
                self.tree.usage(*id, fr()),
                available,
                potential,
                self.tree.is_cyclic(*id),
                heights.to_vec(),
            )
        };
        self.queues.iter().map(of).collect()
    }
}

proptest! {
    #[test]
    fn live_tree_equals_a_rebuilt_tree(steps in prop::collection::vec(any_step(), 0..30)) {
        let mut played = Played::new();
        steps.iter().for_each(|step| played.step(step));
        prop_assert_eq!(played.answers(), played.rebuilt().answers());
    }

    #[test]
    fn added_and_removed_usage_leaves_no_trace(
        steps in prop::collection::vec(any_step(), 0..20),
        uses in prop::collection::vec((0..4_usize, any_amount()), 1..10),
    ) {
        let mut played = Played::new();
        steps.iter().for_each(|step| played.step(step));
        let before = played.answers();
        for (queue, amount) in &uses {
            played.tree.shift(played.queues[*queue], fr(), i128::from(*amount));
        }
        // In another order than at the addition.
        for (queue, amount) in &uses {
            played.tree.shift(played.queues[*queue], fr(), -i128::from(*amount));
        }
        prop_assert_eq!(before, played.answers());
    }

    #[test]
    fn using_available_quota_never_hurts_other_queues(
        steps in prop::collection::vec(any_step(), 0..20),
        queue in 0..4_usize,
    ) {
        let mut played = Played::new();
        steps.iter().for_each(|step| played.step(step));
        let id = played.queues[queue];
        let free = played.tree.available(id, fr());
        prop_assert!(free <= played.tree.potential(id, fr()));
        // Beyond `i64::MAX` an unlimited quota is exhausted.
        let used: i128 = played.places.iter().map(|(.., used)| used).sum();
        if free > Amount::ZERO && used + i128::from(free.get()) < i128::from(i64::MAX) {
            let before: Vec<_> = played.queues.iter().map(|id| played.tree.available(*id, fr()).get().min(0)).collect();
            played.tree.shift(id, fr(), i128::from(free.get()));
            prop_assert!(played.tree.available(id, fr()) <= Amount::ZERO, "nothing is left of what was available");
            let after: Vec<_> = played.queues.iter().map(|id| played.tree.available(*id, fr()).get().min(0)).collect();
            prop_assert_eq!(before, after);
        }
    }
}
