//! Order of buckets, and moves of whole classes.

use proptest::prelude::*;

use super::equivalence::{EquivalenceClass, EquivalenceClasses};
use super::*;
use crate::afs::weighted;
use crate::workloads::{LocalQueues, WorkloadEntry, Workloads};
use crate::{LocalQueueKey, Name, PodSet, Time, WorkloadKey};

/// Ids as the engine gives them.
struct Ids {
    classes: Vec<std::sync::Arc<EquivalenceClass>>,
    queues: Vec<LocalQueueId>,
    workloads: Vec<WorkloadId>,
}

impl Ids {
    fn new() -> Self {
        let (mut classes, mut queues, mut workloads) =
            (EquivalenceClasses::default(), LocalQueues::default(), Workloads::default());
        let class = |number: i32| {
            classes.intern(number % 2, vec![1], vec![PodSet::new("main", number)], None, None)
        };
        let classes: Vec<_> = (0..4).map(class).collect();
        let queues: Vec<_> =
            (0..2).map(|n| queues.intern(&LocalQueueKey::new("ns", format!("q{n}")))).collect();
        let mut workload = |number: i32| {
            workloads.insert(WorkloadEntry {
                placement_inputs: None,
                key: WorkloadKey::new("ns", format!("w{number}")),
                uid: "uid".into(),
                queue: queues[0],
                class: classes[0].clone(),
                created: Time(0),
                queue_time: Time(0),
                requeue_at: None,
                requeued: None,
                not_before: None,
                flags: crate::workloads::Flags::default(),
                preemption_issued: false,
                reservation: None,
                scan: None,
                reason: None,
                queued_in: None,
                parent: None,
            })
        };
        let workloads = (0..12).map(&mut workload).collect();
        Self { classes, queues, workloads }
    }

    /// The bucket and item of workload `number`. Two workloads may have equal times and differ by
    /// uid.
    fn place(&self, number: usize) -> (Bucket, Item) {
        let class = &self.classes[number % self.classes.len()];
        let bucket = Bucket {
            class: class.id,
            queue: self.queues[number / 4 % 2],
            priority: class.priority,
        };
        let uid: Name = format!("uid-{number:02}").into();
        (bucket, Item { time: Time((number % 5) as i64), uid, id: self.workloads[number] })
    }
}

proptest! {
    #[test]
    fn head_is_the_first_in_order_after_any_changes(
        steps in prop::collection::vec((0..12_usize, 0..4_u8), 0..60)
    ) {
        let ids = Ids::new();
        let mut heap = Heap::default();
        let mut model = std::collections::BTreeSet::new();
        let mut aside = Vec::new();
        for (number, step) in steps {
            let (bucket, item) = ids.place(number);
            match step {
                0 | 1 => {
                    heap.insert(bucket, item);
                    model.insert(number);
                    aside.retain(|(_, items): &(Bucket, std::collections::BTreeSet<Item>)| {
                        !items.contains(&ids.place(number).1)
                    });
                }
                2 => {
                    prop_assert_eq!(heap.remove(bucket, &item), model.remove(&number));
                }
                _ => {
                    // Removes a whole bucket and returns the one removed before.
                    let taken = heap.take(bucket);
                    model.retain(|other| ids.place(*other).0 != bucket);
                    for (bucket, items) in aside.drain(..) {
                        model.extend((0..12).filter(|n| ids.place(*n).0 == bucket && items.contains(&ids.place(*n).1)));
                        heap.append(bucket, items);
                    }
                    aside.push((bucket, taken));
                }
            }
            let rank = |number: &usize| {
                let (bucket, item) = ids.place(*number);
                (std::cmp::Reverse(bucket.priority), item)
            };
            let first = model.iter().min_by_key(|number| rank(number)).map(|number| ids.place(*number).1);
            prop_assert_eq!(heap.peek().map(|(_, item)| item.clone()), first);
            prop_assert_eq!(heap.len(), model.len());
        }
    }
}

proptest! {
    #[test]
    fn in_order_lists_all_pending_workloads(
        states in prop::collection::vec(0..4_u8, 12), preemptor in prop::option::of(0..12_usize), weighs in any::<bool>(),
        was_passed_over in any::<bool>()
    ) {
        let ids = Ids::new();
        let mut queue = PendingQueue { was_passed_over, ..PendingQueue::default() };
        if weighs {
            queue.set_usage(ids.queues[0], weighted(&BTreeMap::from([("cpu".into(), 1)]), &BTreeMap::new(), 1000));
        }
        queue.preemptor = preemptor.map(|number| ids.place(number));
        let mut model = Vec::new();
        for (number, state) in states.into_iter().enumerate() {
            let Some(state) = [PendingState::Heap, PendingState::Parked, PendingState::BackingOff].get(usize::from(state)) else { continue };
            let (bucket, item) = ids.place(number);
            queue.put_back(bucket, item.clone(), *state);
            let rank = (queue.usage_of(bucket.queue), was_passed_over || preemptor != Some(number), Reverse(bucket.priority), item.clone());
            model.push((rank, (item.id, *state)));
        }
        model.sort_by(|(a, _), (b, _)| a.cmp(b));
        let expected: Vec<_> = model.into_iter().map(|(_, entry)| entry).collect();
        prop_assert_eq!(queue.in_order().collect::<Vec<_>>(), expected);
    }
}

#[test]
fn classes_differ_by_shape_and_end_with_their_last_workload() {
    let mut classes = EquivalenceClasses::default();
    let intern = |classes: &mut EquivalenceClasses, priority, count| {
        classes.intern(priority, vec![count], vec![PodSet::new("main", 1)], None, None)
    };
    let one = intern(&mut classes, 0, 1);
    let same = intern(&mut classes, 0, 1);
    assert_eq!(one.id, same.id);
    assert_ne!(one.id, intern(&mut classes, 1, 1).id, "another priority");
    assert_ne!(one.id, intern(&mut classes, 0, 2).id, "another count");
    let id = one.id;
    classes.release(one);
    assert_eq!(intern(&mut classes, 0, 1).id, id, "one workload still has it");
    classes.release(same.clone());
    classes.release(same);
    assert_ne!(intern(&mut classes, 0, 1).id, id, "an id is never used again");
}
