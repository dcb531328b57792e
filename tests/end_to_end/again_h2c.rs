//! The behaviour towards HTTP/1.1 servers once more towards servers that speak HTTP/2 without TLS: the same tests, with a
//! front before each of their origins.

use crate::pools::over_h2c;

macro_rules! again {
    ($($subject:ident: $($test:ident)*;)*) => {
        $(mod $subject {
            $(#[test]
            fn $test() {
                super::over_h2c(crate::$subject::$test);
            })*
        })*
    };
}

again! {
    reports:
        hosts_are_tried_in_file_order_whatever_their_length
        an_event_stream_begins_with_its_head_and_each_event_comes_before_the_next
        an_http_1_0_client_gets_no_chunks_no_interim_answer_and_the_whole_body;
    forwarding:
        an_absolute_target_becomes_a_path_and_its_authority_the_host
        a_client_cannot_remove_host_framing_or_our_own_fields_by_naming_them_in_connection
        an_upgrade_that_is_not_allowed_is_left_out_and_the_request_goes_on
        interim_answers_are_passed_on_in_order_and_never_to_http_1_0
        an_interim_answer_reaches_the_client_before_the_server_goes_on
        sixteen_interim_answers_pass_and_one_more_is_502
        a_client_that_expects_100_gets_exactly_one_and_then_its_answer
        a_final_answer_in_place_of_100_ends_the_connection_for_the_body_may_never_come
        answers_without_a_body_leave_the_connection_where_the_next_begins
        pipelined_requests_are_answered_in_order_whatever_their_bodies
        a_client_of_http_1_0_keeps_its_connection_where_it_asks_and_the_length_is_known
        large_heads_pass_both_ways_up_to_64_kib
        an_absolute_target_with_a_query_and_no_path_asks_for_the_root;
    bodies:
        a_download_of_64_mib_to_a_stalled_reader_costs_no_memory_and_comes_whole
        an_upload_of_64_mib_to_a_stalled_reader_costs_no_memory_and_comes_whole
        each_piece_of_an_upload_and_of_its_answer_passes_as_it_comes
        an_early_answer_reaches_a_client_that_uploads_and_both_end_well
        an_early_refusal_of_a_server_that_closes_reaches_a_client_that_uploads
        the_rest_of_an_upload_that_its_server_broke_off_is_never_read_as_a_request
        an_answer_that_is_cut_short_never_looks_complete_to_a_client
        an_answer_whose_chunks_are_broken_never_looks_complete_to_a_client
        a_body_that_ends_with_its_servers_connection_is_whole_for_both_kinds_of_client
        an_upload_that_is_cut_short_never_looks_complete_to_a_server
        an_upload_whose_chunks_are_broken_is_400_and_never_looks_complete_to_a_server;
    cancellation:
        a_client_that_goes_away_frees_the_connection_to_its_server_at_once
        a_client_that_goes_away_is_logged_and_not_held_against_the_server
        places_at_a_server_are_all_back_after_hundreds_of_clients_have_vanished
        places_at_a_server_are_all_back_after_requests_that_failed
        memory_and_descriptors_level_out_when_clients_come_and_vanish_for_long;
    retry:
        a_request_whose_server_resets_before_it_answers_is_repeated_where_it_is_idempotent_and_else_never
        count_is_the_most_repetitions_and_each_goes_to_another_server
        a_status_that_is_to_be_repeated_is_held_back_until_another_server_has_answered
        the_last_answer_is_passed_on_where_all_servers_fail_alike
        a_put_of_64_kib_is_repeated_whole_and_a_larger_one_is_not
        a_slow_request_is_never_repeated_for_being_slow;
    tunnel:
        a_tunnel_carries_large_streams_both_ways_at_once
        an_answer_glued_to_the_101_reaches_the_client_every_time
        bytes_that_a_client_sends_before_the_101_reach_the_server_behind_it
        each_direction_of_a_tunnel_ends_by_itself
        a_tunnel_that_one_side_breaks_ends_for_the_other
        a_server_that_refuses_a_tunnel_is_asked_on_as_before;
    pool_limits:
        limit_timeout_response_is_504_for_a_head_and_a_cut_for_a_body
        limit_timeout_response_is_not_reached_by_a_body_that_goes_on
        limit_retry_count_is_the_number_of_repetitions;
    persistence:
        a_cookie_keeps_its_client_and_tells_nothing
        hidden_the_cookie_does_not_reach_the_server
        a_websocket_gets_its_cookie_with_the_101
        the_applications_cookie_is_learned_and_found_in_cookie_and_path;
    mixture:
        no_answer_and_no_body_ever_belongs_to_somebody_else;
}
