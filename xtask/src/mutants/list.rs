//! Errors of the engine, each of which a law must find.

/// An error, and the law that finds it.
pub(crate) struct Mutant {
    /// The law's test.
    pub(crate) law: &'static str,
    /// The error in words.
    pub(crate) says: &'static str,
    /// The file in `scheduler/src`.
    pub(crate) file: &'static str,
    /// Texts with their replacements. Each text is there once.
    pub(crate) changes: &'static [(&'static str, &'static str)],
}

impl Mutant {
    /// Laws of the tree and of past use are beside the code; the others play whole worlds, in `tests/laws`.
    pub(crate) fn is_beside_the_code(&self) -> bool {
        self.law.contains("::tests::")
    }
}

/// By law.
pub(crate) const MUTANTS: &[Mutant] = &[
    Mutant {
        law: "no_order_of_events_panics_and_no_admission_exceeds_what_the_tree_allows",
        says: "what others of the cycle took is not looked at",
        file: "engine/cycle.rs",
        changes: &[(
            "let fits = entry.assignment.usage.iter().all(free);",
            "let fits = entry.assignment.usage.iter().all(free) || true;",
        )],
    },
    Mutant {
        law: "no_order_of_events_panics_and_no_admission_exceeds_what_the_tree_allows",
        says: "borrowing limits do not count",
        file: "tree/quota.rs",
        changes: &[(
            "least = least.min(sum.plus(lent.less(slot.used_in_parent()) + limit).amount());",
            "let _ = (limit, lent);",
        )],
    },
    Mutant {
        law: "nobody_is_admitted_without_being_entitled",
        says: "taints are not looked at",
        file: "flavors/filters.rs",
        changes: &[(
            ".find(|taint| !tolerated(taint));",
            ".find(|taint| !tolerated(taint)).filter(|_| false);",
        )],
    },
    Mutant {
        law: "nobody_is_admitted_without_being_entitled",
        says: "every namespace matches",
        file: "referenced.rs",
        changes: &[(
            "|selector| selector.matches(labels))",
            "|selector| selector.matches(labels) || true)",
        )],
    },
    Mutant {
        law: "nobody_is_admitted_without_being_entitled",
        says: "stopped LocalQueues take workloads",
        file: "workloads.rs",
        changes: &[(
            "queue.stop_policy == crate::StopPolicy::None && !queue.deleting",
            "!queue.deleting",
        )],
    },
    Mutant {
        law: "nobody_is_admitted_without_being_entitled",
        says: "fewer pods than minCount are enough",
        file: "flavors/reduce.rs",
        changes: &[(
            "min_count.unwrap_or(pod_set.count)",
            "min_count.map_or(pod_set.count, |least| least / 2)",
        )],
    },
    Mutant {
        law: "nobody_is_preempted_in_vain",
        says: "equal priority gives way, too",
        file: "preemption/candidates.rs",
        changes: &[
            (
                "PreemptionPolicy::LowerPriority => own > other,",
                "PreemptionPolicy::LowerPriority => own >= other,",
            ),
            (
                "PreemptionPolicy::LowerPriority => own.checked_sub(1),",
                "PreemptionPolicy::LowerPriority => Some(own),",
            ),
        ],
    },
    Mutant {
        law: "those_go_who_must_and_nobody_else",
        says: "the first victim is enough",
        file: "preemption/classical.rs",
        changes: &[(
            "self.preemptor.fits(tree, need, borrowing)\n    }",
            "self.preemptor.fits(tree, need, borrowing) || true\n    }",
        )],
    },
    Mutant {
        law: "those_go_who_must_and_nobody_else",
        says: "nobody is put back whom the preemptor fits without",
        file: "preemption/victim_search.rs",
        changes: &[(
            "if self.fits(tree, need, borrowing) {",
            "if self.fits(tree, need, borrowing) && false {",
        )],
    },
    Mutant {
        law: "what_came_and_went_leaves_no_trace",
        says: "a deleted workload goes on using quota",
        file: "engine/workload.rs",
        changes: &[(
            "        self.leave(id);\n        self.count(id, -1);\n",
            "        self.leave(id);\n",
        )],
    },
    Mutant {
        law: "the_same_events_give_the_same_decisions",
        says: "chance orders the entries of a cycle",
        file: "engine/cycle.rs",
        changes: &[(
            "let rank = |e: &Entry| (e.assignment.borrow,",
            "let chance = || std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);\n            let \
                 rank = |e: &Entry| (chance(), e.assignment.borrow,",
        )],
    },
    Mutant {
        law: "the_order_in_which_a_world_is_listed_does_not_matter",
        says: "who came first goes before who has the lesser uid",
        file: "queue/heap.rs",
        changes: &[(
            "    pub(crate) uid: Name,\n    pub(crate) id: WlId,\n",
            "    pub(crate) id: WlId,\n    pub(crate) uid: Name,\n",
        )],
    },
    Mutant {
        law: "an_engine_started_on_the_same_objects_shows_the_same",
        says: "pods that are done go on using quota that was charged before",
        file: "engine/workload.rs",
        changes: &[(
            "(Some(admission), _) => Some(self.confirmed(new, admission, since)),",
            "(Some(_), Some(hold)) if hold.confirmed => Some(hold.clone()),\n            (Some(admission), _) => \
             Some(self.confirmed(new, admission, since)),",
        )],
    },
    Mutant {
        law: "a_strict_head_is_never_overtaken",
        says: "priority does not order the heap",
        file: "queue/heap.rs",
        changes: &[(
            "priority: Reverse(bucket.priority), item, bucket",
            "priority: Reverse(0), item, bucket",
        )],
    },
    Mutant {
        law: "a_strict_head_is_never_overtaken",
        says: "a StrictFIFO queue parks what fits on no flavor",
        file: "queue/mod.rs",
        changes: &[(
            "QueueingStrategy::StrictFIFO => requeue != Requeue::NamespaceMismatch,",
            "QueueingStrategy::StrictFIFO => !matches!(requeue, Requeue::NamespaceMismatch | Requeue::NoFit),",
        )],
    },
    Mutant {
        law: "every_pending_workload_has_a_reason",
        says: "those that were not tried yet have none",
        file: "engine/queries.rs",
        changes: &[(
            "None => self.untried(id, wl),",
            "None => self.untried(id, wl).filter(|_| false),",
        )],
    },
    Mutant {
        law: "tree::tests::the_live_tree_equals_one_built_anew",
        says: "the tree that somebody left is not summed up anew",
        file: "tree/structure.rs",
        changes: &[(
            "&& !self.drop_if_unused(old)\n",
            "&& !self.drop_if_unused(old)\n                && false\n",
        )],
    },
    Mutant {
        law: "tree::tests::what_is_added_and_removed_again_leaves_no_trace",
        says: "usage stays at the largest number",
        file: "tree/node.rs",
        changes: &[(
            "slot.usage += change;",
            "slot.usage = (slot.usage + change).min(i128::from(i64::MAX));",
        )],
    },
    Mutant {
        law: "tree::tests::using_what_is_available_never_takes_from_those_who_were_within_their_limits",
        says: "what is used at the root is not looked at",
        file: "tree/quota.rs",
        changes: &[(
            "return least.min(sum.plus(slot.subtree.less(slot.usage)).amount());",
            "return least.min(sum.plus(slot.subtree).amount());",
        )],
    },
    Mutant {
        law: "engine::tests::fair_admission::the_lighter_queue_goes_first",
        says: "past use orders nothing",
        file: "queue/heap.rs",
        changes: &[("Some(First { usage,", "Some(First { usage: usage.min(Usage::default()),")],
    },
];
