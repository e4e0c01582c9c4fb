//! Errors of the engine, each of which a law must find.

/// An error, and the law that finds it.
pub(crate) struct EngineMutant {
    /// The law's test.
    pub(crate) law: &'static str,
    /// The error in words.
    pub(crate) says: &'static str,
    /// The file in `scheduler/src`.
    pub(crate) file: &'static str,
    /// Texts with their replacements. The file must contain each text once.
    pub(crate) changes: &'static [(&'static str, &'static str)],
}

impl EngineMutant {
    /// Whether the law is a test beside the code: those of the tree and of past usage. The others run whole engines, in
    /// `tests/laws`.
    pub(crate) fn is_beside_the_code(&self) -> bool {
        self.law.contains("::tests::")
    }
}

/// By law.
pub(crate) const ENGINE_MUTANTS: &[EngineMutant] = &[
    EngineMutant {
        law: "admissions_stay_within_the_quota_tree",
        says: "usage of earlier entries of the cycle is ignored",
        file: "engine/cycle.rs",
        changes: &[(
            "entry.again.is_some() || entry.fits_in(tree);",
            "entry.again.is_some() || entry.fits_in(tree) || true;",
        )],
    },
    EngineMutant {
        law: "admissions_stay_within_the_quota_tree",
        says: "borrowing limits do not count",
        file: "tree/quota.rs",
        changes: &[(
            "least = least.min(sum.plus(lent.minus(slot.used_in_parent()) + limit).amount());",
            "let _ = (limit, lent);",
        )],
    },
    EngineMutant {
        law: "admitted_workloads_are_entitled",
        says: "taints are ignored",
        file: "flavors/filters.rs",
        changes: &[(
            "flavor.node_taints.iter().find(|taint| taint.repels(tolerations())) {",
            "flavor.node_taints.iter().find(|taint| false && taint.repels(tolerations())) {",
        )],
    },
    EngineMutant {
        law: "admitted_workloads_are_entitled",
        says: "every namespace matches",
        file: "referenced.rs",
        changes: &[(
            "|selector| selector.matches(labels))",
            "|selector| selector.matches(labels) || true)",
        )],
    },
    EngineMutant {
        law: "admitted_workloads_are_entitled",
        says: "stopped LocalQueues take workloads",
        file: "workloads.rs",
        changes: &[(
            "queue.stop_policy == crate::StopPolicy::None && !queue.deleting",
            "!queue.deleting",
        )],
    },
    EngineMutant {
        law: "admitted_workloads_are_entitled",
        says: "fewer pods than minCount are enough",
        file: "flavors/reduce.rs",
        changes: &[(
            "min_count.unwrap_or(pod_set.count)",
            "min_count.map_or(pod_set.count, |least| least / 2)",
        )],
    },
    EngineMutant {
        law: "preemptions_admit_their_preemptor",
        says: "LowerPriority also preempts equal priority",
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
    EngineMutant {
        law: "victims_are_minimal_in_one_queue",
        says: "the first victim is enough",
        file: "preemption/classical.rs",
        changes: &[(
            "self.preemptor.fits(tree, need, borrowing, targets)\n    }",
            "self.preemptor.fits(tree, need, borrowing, targets) || true\n    }",
        )],
    },
    EngineMutant {
        law: "victims_are_minimal_in_one_queue",
        says: "victims that the preemptor does not need are not put back",
        file: "preemption/victim_search.rs",
        changes: &[(
            "if !self.fits(tree, need, borrowing, targets) {",
            "if !self.fits(tree, need, borrowing, targets) || true {",
        )],
    },
    EngineMutant {
        law: "deleted_workloads_leave_no_trace",
        says: "a deleted workload keeps its quota",
        file: "engine/workload.rs",
        changes: &[(
            "        self.dequeue(id);\n        self.count(id, -1);\n",
            "        self.dequeue(id);\n",
        )],
    },
    EngineMutant {
        law: "equal_events_give_equal_decisions",
        says: "the entries of a cycle are ordered at random",
        file: "engine/cycle.rs",
        changes: &[(
            "(!e.is_preemptor, borrow, Reverse(priority),",
            "let chance = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);\n                \
             (!e.is_preemptor, chance, borrow, Reverse(priority),",
        )],
    },
    EngineMutant {
        law: "order_of_the_initial_list_changes_no_decision",
        says: "arrival order precedes the uid",
        file: "queue/heap.rs",
        changes: &[(
            "    pub(crate) uid: Name,\n    pub(crate) id: WorkloadId,\n",
            "    pub(crate) id: WorkloadId,\n    pub(crate) uid: Name,\n",
        )],
    },
    EngineMutant {
        law: "restarted_engine_shows_the_same_views",
        says: "reclaimable pods keep their quota after confirmation",
        file: "engine/workload.rs",
        changes: &[(
            "(Some(admission), _) => Some(self.confirmed_reservation(new, admission, since)),",
            "(Some(_), Some(reservation)) if reservation.confirmed => Some(reservation.clone()),\n            (Some(admission), _) => \
             Some(self.confirmed_reservation(new, admission, since)),",
        )],
    },
    EngineMutant {
        law: "strict_head_is_never_overtaken",
        says: "priority does not order the heap",
        file: "queue/heap.rs",
        changes: &[(
            "priority: Reverse(bucket.priority), item, bucket",
            "priority: Reverse(0), item, bucket",
        )],
    },
    EngineMutant {
        law: "strict_head_is_never_overtaken",
        says: "a StrictFIFO queue parks what fits on no flavor",
        file: "queue/mod.rs",
        changes: &[(
            "QueueingStrategy::StrictFIFO => requeue != RequeueReason::NamespaceMismatch,",
            "QueueingStrategy::StrictFIFO => !matches!(requeue, RequeueReason::NamespaceMismatch | RequeueReason::NoFit),",
        )],
    },
    EngineMutant {
        law: "every_pending_workload_has_a_reason",
        says: "untried workloads have no reason",
        file: "engine/queries.rs",
        changes: &[(
            "None => self.untried_reason(id, wl),",
            "None => self.untried_reason(id, wl).filter(|_| false),",
        )],
    },
    EngineMutant {
        law: "tree::tests::live_tree_equals_a_rebuilt_tree",
        says: "the tree that a node left is not summed again",
        file: "tree/structure.rs",
        changes: &[(
            "&& !self.drop_if_unused(old)\n",
            "&& !self.drop_if_unused(old)\n                && false\n",
        )],
    },
    EngineMutant {
        law: "tree::tests::added_and_removed_usage_leaves_no_trace",
        says: "usage stays at the largest number",
        file: "tree/node.rs",
        changes: &[(
            "slot.usage += change;",
            "slot.usage = (slot.usage + change).min(i128::from(i64::MAX));",
        )],
    },
    EngineMutant {
        law: "tree::tests::using_available_quota_never_hurts_other_queues",
        says: "usage at the root is ignored",
        file: "tree/quota.rs",
        changes: &[(
            "return least.min(sum.plus(slot.subtree.minus(slot.usage)).amount());",
            "return least.min(sum.plus(slot.subtree).amount());",
        )],
    },
    EngineMutant {
        law: "engine::tests::fair_admission::lowest_past_usage_is_admitted_first",
        says: "past usage orders nothing",
        file: "queue/heap.rs",
        changes: &[(
            "Some(First { usage,",
            "Some(First { usage: usage.min(WeightedUsage::default()),",
        )],
    },
];
