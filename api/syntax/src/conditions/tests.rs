use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn with(status: bool, reason: &str) -> Condition {
    new(ADMITTED, status, reason, "why", Some(1))
}

#[test]
fn transition_time_moves_only_with_the_status() {
    let mut list = Vec::new();
    assert!(set(&mut list, with(false, "NoReservation"), at(1)));
    assert!(!set(&mut list, with(false, "NoReservation"), at(2)), "nothing changed");
    assert!(set(&mut list, with(false, "UnsatisfiedAdmissionChecks"), at(3)));
    assert_eq!(list[0].last_transition_time.0, at(1));
    assert!(set(&mut list, with(true, "Admitted"), at(4)));
    assert_eq!(list[0].last_transition_time.0, at(4));
    assert_eq!(list.len(), 1);
}

#[test]
fn condition_is_found_by_type() {
    let mut list = vec![with(true, "Admitted"), new(EVICTED, false, "Preempted", "", None)];
    assert!(is_true(&list, ADMITTED) && !is_true(&list, EVICTED) && !is_true(&list, FINISHED));
    assert!(is_false(&list, EVICTED) && !is_false(&list, FINISHED));
    assert!(remove(&mut list, ADMITTED));
    assert!(!remove(&mut list, ADMITTED));
    assert!(find(&list, ADMITTED).is_none());
}

#[test]
fn message_is_cut_between_characters() {
    let mut list = Vec::new();
    set(&mut list, new(ADMITTED, true, "Admitted", "ö".repeat(20_000), None), at(1));
    let message = &list[0].message;
    assert!(message.len() <= MAX_MESSAGE_BYTES && message.len() > MAX_MESSAGE_BYTES - 4);
    assert!(message.ends_with("ö ..."));
    assert_eq!(truncated_event("short".into()), "short");
    assert_eq!(truncated_event("x".repeat(1025)).len(), MAX_EVENT_BYTES);
}
