use super::*;

#[test]
fn one_overload_halves_the_limit_once() {
    let limit = AimdLimit::new(64);
    let numbers: Vec<u64> = (0..64).map(|_| limit.next_request()).collect();
    for number in numbers {
        limit.overloaded(number);
    }
    assert_eq!(limit.limit(), 32);
    let next = limit.next_request();
    limit.overloaded(next);
    assert_eq!(limit.limit(), 16);
}

#[test]
fn limit_grows_by_one_per_limit_of_responses_up_to_the_maximum() {
    let limit = AimdLimit::new(8);
    let number = limit.next_request();
    limit.overloaded(number);
    assert_eq!(limit.limit(), 4);
    for _ in 0..4 {
        limit.answered();
    }
    assert_eq!(limit.limit(), 5);
    for _ in 0..1000 {
        limit.answered();
    }
    assert_eq!(limit.limit(), 8);
}

#[test]
fn limit_stays_at_least_one() {
    let limit = AimdLimit::new(0);
    for _ in 0..10 {
        let number = limit.next_request();
        limit.overloaded(number);
    }
    assert_eq!(limit.limit(), 1);
}
