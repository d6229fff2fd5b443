//! Console sessions, each kept as a file in `scripts/`.

use axon_tests::transcript::check;

#[test]
fn the_language_answers_as_the_manual_says() {
    check("language");
}
