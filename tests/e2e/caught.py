"""Faults of generation, and the cases of suite `e2e` that must catch each by a wrong value."""

from __future__ import annotations

CAUGHT: dict[str, list[str]] = {
    "bound_mutants:logprobs_of_the_first": ["parameters:GEN-33:draft=draft_model k=3;parameter=one for each request"],
    "bound_mutants:samples_of_seed_zero": ["requests:GEN-33:draft=none;check=count"],
    "bound_mutants:one_end_before_min_tokens": [
        "limits:GEN-10:target=tiny;draft=draft_model k=3;stop=several ends of sequence",
    ],
    "bound_mutants:warm_prompt_logprobs": ["logprobs:GEN-31:draft=none"],
    "bound_mutants:slots_sample_a_copy": ["logprobs:GEN-30:draft=ngram k=3;sampler=request_state;mode=processed"],
    "bound_mutants:drafts_at_least_warm": ["independence:GEN-7:target=tiny;memory=budget;draft=draft_model k=3"],
    "bound_mutants:four_stop_tokens": ["limits:GEN-10:draft=none;stop=any token"],
    "bound_mutants:two_stop_strings": ["requests:GEN-32:draft=none"],
    "bound_mutants:few_biases": ["parameters:GEN-21:parameter=logit bias;draft=eagle3 k=3;sampling=greedy"],
    "bound_mutants:cold_is_greedy": ["parameters:GEN-23:parameter=top-k;draft=none"],
    "bound_mutants:at_most_two": ["independence:GEN-5:draft=none;memory=preemption;check=numbers"],
    "bound_mutants:full_chunk_samples": [
        "limits:GEN-11:draft=none;memory=blocks of 32, chunks of 24;check=around a chunk",
    ],
    "bound_mutants:top_k_of_32_bits": ["parameters:GEN-23:draft=none;parameter=top-k;check=past 32 bits"],
    "bound_mutants:two_decimals": ["logprobs:GEN-30:draft=none;mode=processed"],
    "condition_mutants:chain_state_kept": ["greedy:GEN-14:draft=eagle3 k=5;check=chains"],
    "condition_mutants:draws_for_all": ["sampled:GEN-12:draft=draft_model k=3;memory=blocks of 32, chunks of 24"],
    "condition_mutants:prompt_logprobs_again": ["logprobs:GEN-31:draft=none;memory=preemption"],
    "condition_mutants:first_listed_stop": ["requests:GEN-32:draft=none;stop=two in one token"],
    "condition_mutants:mild_top_p_ignored": [
        "witness:GEN-23:parameter=top-p;sampler=request_state;target=witness;draft=none;check=mild",
    ],
    "condition_mutants:logprobs_of_none_forgotten": ["logprobs:GEN-29:draft=none;top=0"],
    "condition_mutants:raw_of_tempered": ["logprobs:GEN-29:draft=none;top=0"],
    "copied_mutants:base_of_the_target": ["greedy:GEN-14:configuration=rotary base;draft=eagle3 k=3"],
    "copied_mutants:fields_of_the_top": ["greedy:GEN-14:draft=eagle3 k=3;configuration=layers in eagle_config"],
    "copied_mutants:window_of_the_target": [
        "greedy:GEN-14:configuration=sliding window;draft=draft_model k=3",
        "windows:GEN-14:target=windowed;draft=draft_model k=3;drafter=without a window",
    ],
    "copied_mutants:top_p_first": [
        "parameters:GEN-24:parameter=top-k and top-p;draft=draft_model tree k=8;target=tiny;sampling=drawn",
    ],
    "copied_mutants:one_end_ignored": [
        "limits:GEN-10:draft=none;target=tiny;stop=ignored ends of sequence",
    ],
    "copied_mutants:samples_of_a_seed_below_zero": ["requests:GEN-33:draft=none;seeds=below 0;check=count"],
    "copied_mutants:started_beside_plain_ones": [
        "parameters:GEN-3:draft=none;parameter=one for each request;batch=plain ones",
    ],
    "copied_mutants:top_k_before_the_grammar": [
        "parameters:GEN-24:draft=none;target=tiny;parameter=grammar and top-k",
    ],
    "copied_mutants:drafts_of_cut_logits": [
        "witness:GEN-6:sampler=flat;target=witness;draft=draft_model k=3;check=precision",
    ],
    "copied_mutants:rates_by_numbers_of_drafting": [
        "verification_methods:GEN-27:target=tiny;draft=draft_model k=3;check=drafts",
    ],
    "first_mutants:no_room_ahead": [
        "first_drafts:GEN-14:draft=draft_model k=3;check=ends of blocks",
        "first_drafts:GEN-14:draft=draft_model k=3;rate=1;check=ends of blocks",
    ],
    "first_mutants:drafted_keys_kept": ["first_drafts:GEN-14:draft=eagle3 k=3;check=second step"],
    "first_mutants:slots_in_a_row": ["first_drafts:GEN-44:tree=forks;check=ends of blocks"],
    "first_mutants:long_prompts_cut": ["greedy:GEN-1:draft=none;check=lengths of prompts"],
    "first_mutants:limit_of_the_slot_kept": [
        "independence:GEN-23:parameter=min-p;draft=none;sampler=request_state;others=limited before",
        "successors:GEN-51:sampler=request_state;parameter=min-p;draft=none;after=a request",
    ],
    "first_mutants:texts_of_places_kept": ["prompt_lookup:GEN-49:draft=ngram k=3;requests=after longer ones"],
    "length_mutants:state_not_kept": [
        "hybrid:GEN-45:draft=ngram k=3;target=hybrid;check=lengths of prompts",
        "hybrid:GEN-45:draft=draft_model k=3;memory=blocks of 32, chunks of 24;target=hybrid;check=lengths of prompts",
    ],
    "length_mutants:last_keys_are_drafts": [
        "limits:GEN-11:draft=eagle3 k=3;check=as long as a step with drafts",
        "limits:GEN-11:draft=draft_model k=3;memory=blocks of 32, chunks of 24;check=as long as a step with drafts",
        "windows:GEN-41:target=windowed;draft=draft_model k=3;check=lengths of prompts",
    ],
    "length_mutants:first_token_sampled": ["limits:GEN-11:draft=draft_model k=3;check=beside a step with drafts"],
    "length_mutants:prompt_without_adapter": [
        "lora:GEN-43:draft=draft_model k=3;adapters=several and none;check=lengths of prompts",
    ],
    "first_mutants:shortest_looked_up": [
        "prompt_lookup:GEN-50:sampler=flat;target=following;draft=ngram k=3",
        "prompt_lookup:GEN-50:sampler=request_state;target=following;draft=ngram k=3",
    ],
    "first_mutants:first_in_long_texts": ["prompt_lookup:GEN-50:target=following;draft=ngram k=3;prompts=long"],
    "first_mutants:longest_is_exclusive": ["prompt_lookup:GEN-50:sampler=flat;target=following;draft=ngram k=3"],
    "first_mutants:no_overlap": ["prompt_lookup:GEN-50:sampler=flat;target=following;draft=ngram k=3"],
    "general_mutants:keys_kept": ["requests:ANY-10:draft=draft_model k=3", "requests:ANY-10:draft=none"],
    "general_mutants:bonus_lost": ["limits:GEN-16:draft=draft_model k=3", "limits:GEN-9:draft=draft_model k=3"],
    "general_mutants:stopped_at_the_limit_by_length": ["requests:GEN-32:draft=none;stop=before max_tokens"],
    "general_mutants:thread_per_call": ["requests:ANY-10:draft=none"],
    "general_mutants:last_draft_kept": [
        "greedy:GEN-1:draft=draft_model k=3",
        "greedy:GEN-2:draft=ngram k=3",
    ],
    "general_mutants:chunks_shifted": [
        "greedy:GEN-4:memory=blocks of 32, chunks of 24;draft=draft_model k=3",
    ],
    "general_mutants:bonus_counted": [
        "limits:GEN-8:draft=ngram k=3",
    ],
    "general_mutants:drafts_reversed": [
        "limits:GEN-9:draft=draft_model k=3",
    ],
    "general_mutants:stops_at_step_end": [
        "limits:GEN-10:draft=draft_model k=3;stop=any token",
    ],
    "general_mutants:block_start_not_written": [
        "limits:GEN-11:draft=none;length=17",
    ],
    "general_mutants:one_short_of_the_limit": [
        "limits:GEN-11:draft=ngram k=3;memory=blocks of 32, chunks of 24;edge=length limit",
    ],
    "general_mutants:seed_with_arrival": [
        "sampled:GEN-12:draft=draft_model k=3",
    ],
    "general_mutants:async_forgets_last": [
        "requests:GEN-36:draft=draft_model k=3;parameter=async scheduling",
    ],
    "general_mutants:limit_not_checked": [
        "bad_configurations:GEN-38:configuration=length beyond the model",
    ],
    "general_mutants:unknown_token_taken": [
        "bad_configurations:GEN-38:draft=none;request_=prompt of unknown tokens",
    ],
    "general_mutants:one_stop_string": [
        "requests:GEN-32:draft=none",
    ],
    "general_mutants:one_end_of_sequence": [
        "limits:GEN-10:target=tiny;draft=draft_model k=3;stop=several ends of sequence",
    ],
    "general_mutants:tells_beyond_the_end": [
        "limits:GEN-10:draft=draft_model k=3;stop=any token",
    ],
    "general_mutants:tells_first_kinds": [
        "limits:GEN-16:draft=ngram k=3",
    ],
    "general_mutants:last_is_called_bonus": [
        "limits:GEN-16:draft=ngram k=3",
    ],
    "general_mutants:short_bad_words_ignored": [
        "parameters:GEN-19:parameter=bad words of one token;draft=ngram k=3;sampling=greedy",
    ],
    "lora_mutants:middle_chunks_without": [
        "lora:GEN-43:memory=blocks of 32, chunks of 24;draft=none;adapters=several",
    ],
    "hybrid_mutants:no_rollback": [
        "hybrid:GEN-45:draft=ngram k=3;target=hybrid",
        "hybrid:GEN-45:accepted=none;target=hybrid;draft=draft_model k=3",
    ],
    "hybrid_mutants:one_too_many": [
        "hybrid:GEN-45:draft=ngram k=3;target=hybrid",
        "hybrid:GEN-45:accepted=all;target=hybrid;draft=draft_model k=3",
    ],
    "hybrid_mutants:conv_not_rolled_back": [
        "hybrid:GEN-45:draft=draft_model k=3;target=hybrid",
        "hybrid:GEN-45:accepted=first;target=hybrid;draft=draft_model k=3",
    ],
    "hybrid_mutants:matrix_not_rolled_back": [
        "hybrid:GEN-45:draft=ngram k=3;target=hybrid;check=log-probabilities",
        "hybrid:GEN-45:accepted=none;target=hybrid;draft=draft_model k=3",
    ],
    "hybrid_mutants:neighbour": [
        "hybrid:GEN-45:draft=none;target=hybrid",
    ],
    "hybrid_mutants:accepted_of_neighbour": [
        "hybrid:GEN-45:draft=ngram k=3;target=hybrid;check=pauses",
    ],
    "hybrid_mutants:first_checkpoint": [
        "hybrid:GEN-45:draft=ngram k=3;target=hybrid",
    ],
    "hybrid_mutants:finished": [
        "hybrid:GEN-45:draft=none;target=hybrid",
        "hybrid:GEN-45:memory=blocks of 32, chunks of 24;draft=none;target=hybrid",
    ],
    "hybrid_mutants:preempted": [
        "hybrid:GEN-45:memory=preemption;draft=none;target=hybrid",
    ],
    "hybrid_mutants:chunk_forgotten": [
        "hybrid:GEN-45:memory=blocks of 32, chunks of 24;draft=none;target=hybrid",
    ],
    "hybrid_mutants:padded": [
        "hybrid:GEN-45:draft=none;target=hybrid;check=log-probabilities",
    ],
    "independence_mutants:neighbours_top_k": [
        "independence:GEN-23:parameter=top-k;draft=none;others=limited",
    ],
    "independence_mutants:draws_for_the_longest": ["sampled:GEN-12:draft=mtp k=3;check=last tokens"],
    "independence_mutants:verifies_the_longest": ["sampled:GEN-12:draft=eagle3 k=3;check=last tokens"],
    "independence_mutants:parallel_as_first": [
        "sampled:GEN-6:sampler=request_state;target=tiny;draft=draft_model parallel k=2",
    ],
    "independence_mutants:parallel_swapped": ["sampled:GEN-6:sampler=flat;target=tiny;draft=draft_model parallel k=2"],
    "independence_mutants:alone_repeats": ["independence:GEN-5:draft=none;calls=2"],
    "independence_mutants:calls_repeat": [
        "independence:GEN-5:draft=none;calls=2",
    ],
    "independence_mutants:numbers_after_preemption": [
        "independence:GEN-5:draft=none;memory=preemption;check=numbers",
        "synthetic_steps:GEN-27:target=long;draft=draft_model k=3;memory=preemption;check=repeats",
    ],
    "independence_mutants:seed_zero_is_none": [
        "independence:GEN-12:draft=none;seeds=0 and 1",
    ],
    "independence_mutants:cut_probs_from_the_end": [
        "independence:GEN-7:target=tiny;memory=budget;draft=draft_model k=3",
    ],
    "independence_mutants:zero_logprobs_processed": [
        "logprobs:GEN-29:draft=none;top=0",
    ],
    "independence_mutants:recent_text": [
        "requests:GEN-32:draft=none",
    ],
    "independence_mutants:lookup_window": [
        "counter_rng:GEN-17:draft=ngram k=3;sampler=request_state",
    ],
    "pair_mutants:penalties_of_the_last_chunk": ["pairs:GEN-22:memory=cramped slots;target=tiny;feature=penalties"],
    "pair_mutants:adapter_lost_on_resuming": ["pairs:GEN-43:memory=cramped;target=tiny;feature=adapter"],
    "pair_mutants:stop_strings_beside_stop_tokens": ["pairs:GEN-32:memory=ample;target=tiny;feature=stop strings"],
    "reuse_mutants:budget_before_stop": ["requests:GEN-32:draft=draft_model k=3;stop=before max_tokens"],
    "reuse_mutants:limit_samples": ["parameters:GEN-23:draft=none;parameter=limits;sampling=greedy"],
    "reuse_mutants:grammar_goes_on": ["parameters:GEN-39:draft=none;target=tiny;parameter=grammar;check=second call"],
    "reuse_mutants:numbers_of_the_token_before": ["independence:GEN-5:draft=none;check=tokens before"],
    "reuse_mutants:sure_drafts_less_sure": ["sampled:GEN-6:target=tiny;draft=draft_model k=1;drafter=sure"],
    "runner_mutants:kv_not_rolled_back": [
        "greedy:GEN-13:draft=draft_model k=3",
        "greedy:GEN-13:draft=ngram k=3",
    ],
    "runner_mutants:position_off_by_one": [
        "greedy:GEN-13:draft=draft_model k=3",
        "greedy:GEN-13:draft=ngram k=3",
    ],
    "runner_mutants:aux_layers_shifted": [
        "greedy:GEN-14:draft=eagle3 k=3",
    ],
    "runner_mutants:d2t_ignored": [
        "greedy:GEN-14:draft=eagle3 k=3",
    ],
    "runner_mutants:bonus_lost": [
        "limits:GEN-16:draft=draft_model k=3",
    ],
    "runner_mutants:batch_order_by_dict": [
        "greedy:GEN-3:draft=none;others=20",
    ],
    "runner_mutants:stale_drafts_after_preemption": [
        "greedy:GEN-15:draft=draft_model k=3;memory=preemption",
        "greedy:GEN-15:draft=eagle3 k=3;memory=preemption",
    ],
    "runner_mutants:draft_probs_lost": [
        "sampled:GEN-7:draft=draft_model k=3;limits=none",
    ],
    "runner_mutants:recovered_from_target": [
        "sampled:GEN-6:draft=draft_model k=3;limits=none;target=tiny",
    ],
    "runner_mutants:too_cold": [
        "sampled:GEN-5:draft=draft_model k=3;limits=none",
        "sampled:GEN-6:draft=draft_model k=3;limits=none;target=tiny",
    ],
    "runner_mutants:seed_ignored": [
        "counter_rng:GEN-17:draft=none;sampler=request_state",
    ],
    "runner_mutants:counts_from_one": [
        "counter_rng:GEN-17:draft=ngram k=3;sampler=request_state",
    ],
    "runner_mutants:drafts_count_from_one": [
        "counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state",
    ],
    "runner_mutants:one_salt": [
        "counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state",
    ],
    "runner_mutants:slots_mixed_up": [
        "counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state",
    ],
    "runner_mutants:slot_not_written": [
        "counter_rng:GEN-17:draft=none;memory=preemption;sampler=request_state",
    ],
    "runner_mutants:samples_on_resuming": [
        "counter_rng:GEN-17:draft=draft_model k=3;memory=preemption;sampler=request_state",
    ],
    "parameter_mutants:allowed_ids_ignored": [
        "parameters:GEN-18:parameter=allowed ids;draft=draft_model k=3;sampling=greedy",
    ],
    "parameter_mutants:neighbours_masked": [
        "parameters:GEN-39:parameter=grammar;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-39:parameter=grammar;draft=none;sampling=greedy",
    ],
    "parameter_mutants:next_processed": [
        "parameters:GEN-18:parameter=allowed ids;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-21:parameter=logit bias;draft=draft_model k=3;sampling=greedy",
    ],
    "parameter_mutants:bonus_unprocessed": [
        "parameters:GEN-18:parameter=allowed ids;draft=ngram k=3;sampling=greedy",
        "parameters:GEN-21:parameter=logit bias;draft=draft_model k=3;target=tiny;sampler=request_state",
    ],
    "parameter_mutants:drafts_unprocessed": [
        "parameters:GEN-18:parameter=allowed ids;draft=eagle3 k=3;sampling=greedy",
        "parameters:GEN-21:parameter=logit bias;draft=draft_model k=3;sampling=greedy",
    ],
    "parameter_mutants:special_first": [
        "parameters:GEN-18:parameter=allowed ids;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-24:parameter=everything;draft=ngram k=3;sampling=greedy",
    ],
    "parameter_mutants:forgets_drafts": [
        "parameters:GEN-19:parameter=bad words;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-20:parameter=min tokens;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-22:parameter=presence penalty;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-22:parameter=frequency penalty;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-22:parameter=penalties;draft=draft_model k=3;target=tiny;sampler=request_state",
    ],
    "parameter_mutants:bad_words_off_by_one": [
        "parameters:GEN-19:parameter=bad words;draft=ngram k=3;sampling=greedy",
        "parameters:GEN-19:parameter=bad words;draft=draft_model k=3;target=tiny;sampling=drawn",
    ],
    "parameter_mutants:one_stop_token": [
        "parameters:GEN-20:parameter=min tokens;draft=none;sampling=greedy",
    ],
    "parameter_mutants:all_drafts_counted": [
        "parameters:GEN-22:parameter=penalties;draft=draft_model k=3;sampling=greedy",
    ],
    "parameter_mutants:prompt_forgotten": [
        "parameters:GEN-22:parameter=repetition penalty;draft=none;sampling=greedy",
    ],
    "parameter_mutants:min_p_of_bonus_only": [
        "parameters:GEN-23:parameter=min-p;draft=draft_model k=3",
        "parameters:GEN-23:parameter=min-p;draft=draft_model k=3;target=tiny;sampling=drawn",
    ],
    "parameter_mutants:top_k_ignored": [
        "parameters:GEN-23:parameter=top-k;draft=eagle3 k=3",
    ],
    "parameter_mutants:top_p_ignored": [
        "parameters:GEN-23:parameter=top-p;draft=ngram k=3",
    ],
    "parameter_mutants:min_p_after_top_p": [
        "parameters:GEN-24:parameter=min-p and top-p;draft=draft_model k=3;target=tiny;sampling=drawn",
        "parameters:GEN-24:parameter=all limits;draft=draft_model k=3;target=tiny;sampling=drawn",
    ],
    "method_mutants:block_ignored": [
        "verification_methods:GEN-25:method=block;sampler=request_state;draft=draft_model k=3;limits=none;target=tiny",
        "options:GEN-37:option=rejection_sample_method_block",
    ],
    "method_mutants:stale_residual": [
        "verification_methods:GEN-26:sampler=request_state;draft=draft_model k=3;parameter=none;target=tiny",
    ],
    "method_mutants:unconditional_rates": [
        "verification_methods:GEN-27:rates=0.8 0.5 0.2;batch=mixed;draft=draft_model k=3;target=tiny",
    ],
    "method_mutants:scheduled_counted": [
        "verification_methods:GEN-27:rates=0.8 0.5 0.2;batch=all greedy;draft=draft_model k=3;target=tiny",
    ],
    "method_mutants:rates_ignored": [
        "verification_methods:GEN-28:rate=0;batch=mixed;draft=draft_model k=3",
        "verification_methods:GEN-28:rate=1;batch=all sampled;draft=draft_model k=3",
        "options:GEN-37:option=synthetic_acceptance_rates",
    ],
    "method_mutants:logprob_rows_shifted": [
        "logprobs:GEN-29:draft=draft_model k=3",
    ],
    "method_mutants:logprobs_of_last_alone": [
        "logprobs:GEN-29:draft=draft_model k=3",
    ],
    "method_mutants:logprobs_of_one": [
        "logprobs:GEN-29:draft=ngram k=3",
    ],
    "method_mutants:raw_is_processed": [
        "logprobs:GEN-29:draft=none",
        "logprobs:GEN-30:draft=draft_model k=3;mode=processed",
    ],
    "method_mutants:prompt_off_by_one": [
        "logprobs:GEN-31:draft=draft_model k=3",
    ],
    "method_mutants:stop_string_at_the_end": [
        "requests:GEN-32:draft=draft_model k=3",
    ],
    "method_mutants:samples_share_numbers": [
        "requests:GEN-33:draft=draft_model k=3;target=tiny",
    ],
    "method_mutants:aborted_keeps_running": [
        "requests:GEN-34:draft=draft_model k=3;memory=preemption",
    ],
    "method_mutants:cached_blocks_not_copied": [
        "requests:GEN-35:draft=draft_model k=3;parameter=none",
    ],
    "method_mutants:length_at_most_k": ["verification_methods:GEN-28:rates=length 7;draft=draft_model k=6"],
    "method_mutants:length_at_least_two": ["verification_methods:GEN-28:rates=length 1;draft=draft_model k=6"],
    "method_mutants:depth_ignored": [
        "options:GEN-37:option=num_speculative_tokens",
    ],
    "method_mutants:ngram_min_ignored": [
        "options:GEN-37:option=ngram_min",
    ],
    "parameter_mutants:grammar_at_start_of_step": [
        "parameters:GEN-39:parameter=grammar;draft=draft_model k=3;sampling=greedy",
        "parameters:GEN-39:parameter=grammar;draft=draft_model k=3;target=tiny;sampling=drawn",
    ],
    "parameter_mutants:grammar_not_rolled_back": [
        "parameters:GEN-39:parameter=grammar;draft=draft_model k=3;target=tiny;sampling=drawn",
    ],
    "method_mutants:ngram_max_ignored": ["options:GEN-37:option=ngram_max"],
    "method_mutants:argmax_ignored": [
        "options:GEN-37:option=draft_sample_method",
    ],
    "method_mutants:dtype_ignored": [
        "options:GEN-37:option=dtype",
    ],
    "method_mutants:seed_of_engine_ignored": [
        "options:GEN-37:option=seed",
    ],
    "method_mutants:logprobs_mode_ignored": [
        "options:GEN-37:option=logprobs_mode",
    ],
    "method_mutants:max_num_seqs_ignored": [
        "options:GEN-37:option=max_num_seqs",
    ],
    "rank_engines:own_noise": [
        "ranks:GEN-40:draft=none;sampling=seeded",
    ],
    "rank_engines:own_noise_in_float32": [
        "ranks:GEN-40:draft=none;sampling=seeded",
    ],
    "rank_engines:gathered_on_one_rank": ["ranks:GEN-40:draft=none;sampling=greedy"],
    "rank_engines:drafts_on_rank_zero": ["ranks:GEN-40:draft=ngram k=3;sampling=greedy"],
    "window_mutants:windows_ignored": ["windows:GEN-41:draft=none;target=windowed"],
    "window_mutants:one_mask": [
        "windows:GEN-41:draft=none;target=mixed windows",
        "windows:GEN-41:target=mixed windows;memory=preemption;draft=draft_model k=3",
        "windows:GEN-14:target=mixed windows;draft=draft_model k=3",
    ],
    "window_mutants:windows_exchanged": ["windows:GEN-41:draft=ngram k=3;target=mixed windows"],
    "window_mutants:window_without_the_token": [
        "windows:GEN-41:draft=none;target=windowed",
        "windows:GEN-41:memory=preemption;draft=eagle3 k=3;target=windowed",
    ],
    "window_mutants:window_of_the_last_draft": [
        "windows:GEN-41:draft=ngram k=3;target=windowed",
        "windows:GEN-41:draft=draft_model k=3;target=windowed",
    ],
    "schedule_mutants:schedule_ignored": [
        "draft_schedules:GEN-42:batch=6;draft=ngram k=3",
        "draft_schedules:GEN-42:batch=3;draft=eagle3 k=3",
        "options:GEN-37:option=num_speculative_tokens_per_batch_size",
    ],
    "schedule_mutants:ends_exclusive": [
        "draft_schedules:GEN-42:batch=2;draft=draft_model k=3",
        "draft_schedules:GEN-42:batch=5;draft=eagle3 k=3",
    ],
    "schedule_mutants:k_of_the_largest_batch": [
        "draft_schedules:GEN-42:batch=3;draft=draft_model k=3",
        "draft_schedules:GEN-42:draft=draft_model k=3;batch=shrinks",
    ],
    "schedule_mutants:acceptance_ignored": [
        "draft_schedules:GEN-42:accepted=all;batch=1;draft=draft_model k=auto;target=tiny",
        "draft_schedules:GEN-42:accepted=none;batch=3;draft=draft_model k=auto;target=tiny",
    ],
    "schedule_mutants:resumed_unread": ["greedy:GEN-14:draft=draft_model k=auto;check=preemption"],
    "schedule_mutants:backlog_dropped": ["draft_schedules:GEN-42:draft=eagle3 k=auto;batch=shrinks"],
    "schedule_mutants:k_of_all_requests": ["sampled:GEN-12:draft=ngram k=auto;batch=pairs"],
    "schedule_mutants:draws_for_the_deepest": ["sampled:GEN-12:draft=draft_model k=auto;batch=pairs"],
    "schedule_mutants:acceptance_shared": ["sampled:GEN-12:draft=draft_model k=auto;batch=pairs"],
    "schedule_mutants:pause_forgets": [
        "draft_schedules:GEN-42:draft=draft_model k=3;batch=shrinks",
        "draft_schedules:GEN-42:draft=eagle3 k=3;batch=shrinks",
    ],
    "lora_mutants:adapter_of_the_first": [
        "lora:GEN-43:draft=none;adapters=several",
        "lora:GEN-43:draft=eagle3 k=3;adapters=several and none",
    ],
    "lora_mutants:adapter_of_the_place": [
        "lora:GEN-43:memory=blocks of 32, chunks of 24;draft=ngram k=3;adapters=several",
    ],
    "lora_mutants:none_is_the_last": [
        "lora:GEN-43:draft=none;adapters=several and none",
        "lora:GEN-43:draft=ngram k=3;adapters=several and none;check=log-probabilities",
    ],
    "lora_mutants:drafts_without": [
        "lora:GEN-43:draft=draft_model k=3;adapters=several",
        "lora:GEN-43:draft=draft_model k=3;adapters=several;check=log-probabilities",
    ],
    "lora_mutants:prompt_without": [
        "lora:GEN-43:draft=none;adapters=several",
        "lora:GEN-43:draft=ngram k=3;adapters=several;check=log-probabilities",
    ],
    "lora_mutants:scale_left_out": ["lora:GEN-43:draft=none;adapters=several"],
    "lora_mutants:last_adapter_alone": ["lora:GEN-43:draft=none;adapters=several"],
    "cut_mutants:last_drafts_verified": ["greedy:GEN-14:draft=draft_model k=3;memory=budget of 10 for three"],
    "cut_mutants:last_distributions": [
        "sampled:GEN-7:target=tiny;drafter=target;draft=draft_model k=3;batch=cut by the budget",
    ],
    "cut_mutants:drafts_cut_for_all": [
        "counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state;memory=budget of 10 for three",
    ],
    "cut_mutants:cut_drafts_counted": ["limits:GEN-8:draft=draft_model k=3;memory=budget of 10 for three"],
    "cut_mutants:logits_of_slot_zero": ["counter_rng:GEN-17:draft=draft_model k=3;sampler=request_state;check=slots"],
    "cut_mutants:chunks_behind_the_prompt_sample": [
        f"greedy:GEN-4:draft={draft};memory=preemption, chunks of 24"
        for draft in ("none", "ngram k=3", "draft_model k=3")
    ],
    "cut_mutants:stops_in_the_prompt": ["requests:GEN-32:draft=draft_model k=3;stop=begins in the prompt"],
    "cut_mutants:drafts_listed_twice": ["prompt_lookup:GEN-49:draft=suffix k=8;requests=that come and go"],
    "drafter_mutants:outputs_forgotten": ["drafters:GEN-46:limits=defaults"],
    "drafter_mutants:never_evicted": ["drafters:GEN-46:limits=one output"],
    "drafter_mutants:depth_ignored": ["drafters:GEN-46:limits=depth of 6"],
    "drafter_mutants:factor_ignored": ["drafters:GEN-46:limits=factor of 2.5", "drafters:GEN-46:limits=factor of 0.5"],
    "drafter_mutants:probability_ignored": ["drafters:GEN-46:limits=probability of 0.5"],
    "drafter_mutants:longest_match": ["drafters:GEN-46:limits=defaults"],
    "drafter_mutants:ends_left_out": ["drafters:GEN-46:limits=defaults"],
    "drafter_mutants:probability_of_one": ["drafters:GEN-46:limits=probability of 0.5"],
    "drafter_mutants:another_mask": ["drafters:GEN-47:draft=draft_model parallel k=3"],
    "drafter_mutants:masks_stay": [
        "drafters:GEN-47:draft=draft_model parallel k=3",
        "drafters:GEN-47:memory=preemption;draft=draft_model parallel k=3",
    ],
    "drafter_mutants:heads_keys_stay": [
        "greedy:GEN-14:draft=eagle3 k=5;check=chains",
        "drafters:GEN-48:draft=mtp k=3",
    ],
    "drafter_mutants:masks_in_one_place": ["drafters:GEN-47:draft=draft_model parallel k=8"],
    "drafter_mutants:state_before_the_last_layer": ["drafters:GEN-48:memory=preemption;draft=mtp k=3"],
    "drafter_mutants:first_of_the_batch": ["drafters:GEN-48:draft=mtp k=3"],
    "drafter_mutants:state_after_the_norm": ["drafters:GEN-48:draft=mtp k=3"],
    "drafter_mutants:state_of_the_target": ["drafters:GEN-48:draft=mtp k=3"],
    "drafter_mutants:state_of_the_first": [
        "drafters:GEN-48:draft=mtp k=3",
        "greedy:GEN-14:draft=eagle3 k=5;check=chains",
    ],
    "drafter_mutants:token_not_shifted": ["drafters:GEN-48:draft=mtp k=3"],
    "drafter_mutants:lookups_move_up": ["prompt_lookup:GEN-49:draft=ngram k=3;requests=that come and go"],
    "drafter_mutants:past_the_limit": ["greedy:GEN-14:draft=draft_model k=8;edge=length limit"],
    "drafter_mutants:chunks_of_outputs": ["drafters:GEN-48:memory=preemption, chunks of 24;draft=mtp k=3"],
    "drafter_mutants:bound_of_keys_stays": ["greedy:GEN-14:draft=draft_model k=3;dtype=float64"],
    "drafter_mutants:false_field_ignored": [
        "greedy:GEN-14:draft=eagle3 speculators k=3;check=residual before the norm"
    ],
    "synthetic_mutants:positions_of_six_bits": [
        "synthetic_steps:GEN-17:target=long;sampler=request_state;draft=ngram k=5;rates=0.9 0.7 0.7 0.45 0.2",
        "synthetic_steps:GEN-27:sampler=request_state;target=long;draft=ngram k=3;check=repeats",
    ],
    "synthetic_mutants:greedy_numbers_of_zero": [
        "verification_methods:GEN-27:rates=1 0.6 0;batch=mixed;draft=ngram k=3;target=tiny",
    ],
    "synthetic_mutants:greedy_seed_zero": [
        "synthetic_steps:GEN-17:target=long;sampler=request_state;draft=ngram k=5;rates=0.9 0.7 0.7 0.45 0.2",
    ],
    "synthetic_mutants:drafts_not_processed": [
        "synthetic_steps:GEN-16:draft=draft_model k=3;target=tiny;rates=0.7 0.5 0.35",
    ],
    "synthetic_mutants:samples_share_acceptance": [
        "synthetic_steps:GEN-27:sampler=request_state;target=long;draft=ngram k=3;check=repeats",
    ],
    "synthetic_mutants:last_rates": ["synthetic_steps:GEN-27:target=long;draft=draft_model k=4;batch=of other sizes"],
    "synthetic_mutants:numbers_of_two_steps": ["synthetic_steps:GEN-27:target=long;draft=ngram k=3;check=repeats"],
    "successor_mutants:slots_stay": [
        "successors:GEN-51:sampler=request_state;draft=none;parameter=top-k;after=a call",
        "requests:GEN-33:draft=none;sampler=request_state;check=places",
    ],
    "successor_mutants:seeds_stay": [
        "successors:GEN-51:sampler=flat;draft=none;parameter=seed and temperature;after=a call",
    ],
    "successor_mutants:top_p_stays": [
        "successors:GEN-51:sampler=request_state;parameter=top-p;draft=none;after=a request",
    ],
    "successor_mutants:numbers_of_the_last_place": [
        "sampled:GEN-12:draft=none;check=others wait",
        "sampled:GEN-12:draft=draft_model k=3;check=others wait",
    ],
    "successor_mutants:last_token_twice": ["streams:GEN-52:draft=none"],
    "successor_mutants:prompt_rows_after_preemption": [
        "logprobs:GEN-31:draft=none;memory=one sequence",
        "pairs:GEN-31:memory=one sequence;target=tiny;feature=prompt logprobs",
        "pairs:GEN-31:memory=one sequence, slots;target=tiny;feature=prompt logprobs",
    ],
    "tree_mutants:rank_two_is_three": ["trees:GEN-14:tree=wide;target=tiny;check=ranks"],
    "tree_mutants:roots_of_the_first_rows": ["trees:GEN-14:tree=wide;target=tiny;check=ranks"],
    "tree_mutants:drafted_at_places": ["trees:GEN-14:tree=forks;target=tiny;check=ranks"],
    "tree_mutants:branches_drafted_together": ["trees:GEN-14:tree=forks;target=tiny;check=ranks"],
    "tree_mutants:places_of_the_level": [
        "trees:GEN-14:tree=forks;target=tiny;drafter=close;check=every path",
        "trees:GEN-14:tree=braids;target=tiny;drafter=close;check=every path",
    ],
    "tree_mutants:last_of_the_level": ["trees:GEN-14:tree=forks;target=tiny;drafter=close;check=every path"],
    "tree_mutants:branches_seen": [
        "trees:GEN-44:tree=forks",
    ],
    "tree_mutants:path_not_moved": [
        "trees:GEN-44:tree=wide",
        "trees:GEN-44:memory=blocks of 32, chunks of 24;tree=forks",
    ],
    "tree_mutants:lone_node_not_moved": ["trees:GEN-44:tree=wide", "trees:GEN-44:tree=forks;check=ends apart"],
    "tree_mutants:positions_of_places": [
        "trees:GEN-44:tree=forks",
    ],
    "tree_mutants:number_of_the_last_node": ["trees:GEN-44:tree=wide;limits=none;mode=law"],
    "tree_mutants:one_number_a_level": [
        "trees:GEN-44:tree=wide;limits=none;mode=law",
    ],
    "tree_mutants:one_number_for_all": [
        "trees:GEN-44:tree=forks;limits=none;mode=law",
    ],
    "rank_engines:last_of_a_tie": [
        "ranks:GEN-40:draft=none;sampling=greedy;ties=all",
    ],
    "rank_engines:bias_on_each_rank": ["ranks:GEN-40:draft=none;sampling=greedy;check=biases"],
    "synthetic_mutants:cut_draft_emitted": [
        "synthetic_steps:GEN-16:draft=draft_model k=3;memory=budget of 10;target=tiny;rates=0.7 0.5 0.35",
    ],
    "rank_engines:padding_kept": [
        "ranks:GEN-40:draft=none;sampling=greedy;ranks=3;check=a vocabulary that the ranks do not divide",
    ],
    "shape_mutants:norm_of_queries_for_keys": ["shapes:GEN-1:target=norms of three heads;draft=none"],
    "shape_mutants:norms_without_weights": ["shapes:GEN-1:target=norms of three heads;draft=draft_model k=3"],
    "shape_mutants:biases_of_queries_dropped": ["shapes:GEN-1:target=biases;draft=none"],
    "shape_mutants:biases_of_gates_dropped": ["shapes:GEN-1:target=biases;draft=none"],
    "shape_mutants:factor_of_attention_forgotten": ["shapes:GEN-1:target=scaled rotations;draft=none"],
    "shape_mutants:rows_cut": ["shapes:GEN-1:target=wide rows;draft=none"],
    "shape_mutants:unscaled_exponentials": ["shapes:GEN-1:target=steep scores;draft=none"],
    "shape_mutants:half_positions": ["limits:GEN-11:draft=none;length=4200"],
    "shape_mutants:short_positions": ["limits:GEN-11:draft=ngram k=3;length=32900"],
}
"""Engines `module:fault` of this folder, each with ids of the cases that name its fault, without their suite."""
