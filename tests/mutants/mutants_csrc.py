"""Small faults for the C++ kernels, at least one for every clause of packed batches.

The cases of a mutant's clause must fail. `placement.Mutant` describes the entries.
"""

from __future__ import annotations

Entry = tuple[str, str, str] | tuple[str, str, str, int]


def view(tensor: str, change: str) -> str:
    """A C++ expression: the tensor with something changed."""
    return f"[&] {{ Tensor t = {tensor}; t.{change}; return t; }}()"


def narrow(tensor: str) -> str:
    """The tensor read and written as if it were int32."""
    return view(tensor, "type = Type::int32")


EXPAND: list[Entry] = [
    ("EXP-1", "tokens.begin(b); i < end", "tokens.begin(b) + 1; i < end"),
    ("EXP-2", "return expand<float>(output, input, tokens, replace_from, replace_to);", "return;"),
    ("EXP-3", "if (equals(value, from))", "if (equals(value, from) || value != value)"),
    (
        "EXP-3",
        "return static_cast<int64_t>(value) == static_cast<int64_t>(wanted);",
        "return static_cast<double>(value) == wanted;",
    ),
    ("EXP-4", "*output.at<T>(i) = value;", "*output.at<T>(i) = static_cast<T>(static_cast<float>(value));"),
    (
        "EXP-5",
        "for (int64_t i = tokens.begin(b); i < end; ++i) *output.at<T>(i) = value;",
        "int64_t i = tokens.begin(b); do { *output.at<T>(i) = value; } while (++i < end);",
    ),
    ("EXP-6", "T value = *input.at<T>(b);", "T value = reinterpret_cast<T*>(input.data)[b];"),
    ("EXP-7", "end = tokens.end(b);", "end = b + 1 == tokens.size() ? output.size() : tokens.end(b);"),
]

_GREEDY_END = "output.set(b, position, position < count ? argmax.get(begin + position) : bonus.get(b));"
GREEDY: list[Entry] = [
    ("RGS-1", "drafts.get(begin + position));\n    }", "drafts.get(begin));\n    }"),
    ("RGS-2", _GREEDY_END, f"{_GREEDY_END} if (position < count) output.set(b, position + 1, 0);"),
    (
        "RGS-3",
        _GREEDY_END,
        f"output.set(b, count, bonus.get(b)); if (position < count) {_GREEDY_END}",
    ),
    ("RGS-4", "int64_t position = 0;", "if (count == 0) continue;\n    int64_t position = 0;", 1),
    ("RGS-5", "if (is_greedy && !Flags(*is_greedy).get(b)) continue;", ""),
    ("RGS-6", "if (is_greedy && !Flags", "if (!is_greedy || !Flags"),
    ("RGS-7", "return draft == argmax", "return draft < 0 || draft == argmax"),
    ("RGS-8", ".get(token) < Reals", ".get(token) <= Reals"),
    ("RGS-9", "return draft >= 0 && Reals", "return Reals"),
    (
        "RGS-10",
        "draft >= 0 && Reals(*uniform_probs).get(token)",
        "draft >= 0 && float(Reals(*uniform_probs).get(token))",
    ),
    (
        "RGS-11",
        "Reals(*uniform_probs).get(token) < Reals(*synthetic_conditional_rates).get(position)",
        "!(Reals(*uniform_probs).get(token) >= Reals(*synthetic_conditional_rates).get(position))",
    ),
    (
        "RGS-12",
        "Integers output(output_token_ids)",
        f"Integers output({view('output_token_ids', 'stride[0] = max_spec_len + 1')})",
    ),
    ("RGS-13", "  const auto accepts =", "  if (drafts.size() == 0) return;\n  const auto accepts ="),
    ("RGS-14", "argmax(target_argmax)", f"argmax({narrow('target_argmax')})"),
]

_RANDOM_END = "output.set(b, position, position < count ? recovered.get(begin + position) : bonus.get(b));"
RANDOM: list[Entry] = [
    ("RRS-1", "/ q >= u", "/ q > u"),
    ("RRS-2", "no_draft_probs ? 1.0", "no_draft_probs ? 0.5"),
    ("RRS-3", "recovered.get(begin + position)", "recovered.get(begin)"),
    ("RRS-4", _RANDOM_END, f"if (position < count || count == 0) {_RANDOM_END}"),
    ("RRS-5", "int64_t position = 0;", "if (count == 0) continue;\n    int64_t position = 0;", 1),
    ("RRS-6", "if (greedy.get(b)) continue;", ""),
    ("RRS-7", "if (draft < 0 || draft >= vocab_size)", "if (draft >= vocab_size)"),
    ("RRS-8", "if (draft < 0 || draft >= vocab_size)", "if (draft < 0)"),
    ("RRS-9", "return q > 0.0 &&", "return q >= 0.0 &&"),
    ("RRS-10", "target.get(token, draft) / q >= u", "!(target.get(token, draft) / q < u)"),
    ("RRS-11", "const double u = uniform.get(token);", "const float u = static_cast<float>(uniform.get(token));"),
    ("RRS-11", "return u < Reals", "return static_cast<float>(u) < Reals"),
    ("RRS-12", "return u < Reals", "return u <= Reals"),
    ("RRS-13", "target(target_probs)", f"target({view('target_probs', 'stride[0] = vocab_size')})"),
    ("RRS-14", "target(target_probs)", f"target({view('target_probs', 'stride[1] = 1')})"),
    (
        "RRS-15",
        "target.get(token, draft)",
        "target.get(token * vocab_size % (int64_t{1} << 31) / vocab_size, draft)",
    ),
    ("RRS-16", "  const auto accepts =", "  if (drafts.size() == 0) return;\n  const auto accepts ="),
    ("RRS-17", "recovered(recovered_token_ids)", f"recovered({narrow('recovered_token_ids')})"),
    (
        "RRS-18",
        "target(target_probs)",
        f"target({view('target_probs', 'type = t.type == Type::bfloat16 ? Type::float16 : t.type')})",
    ),
]

_DENSE_ROW = "return tensor.at<T>(row, begin);"
_LARGEST = """i < count; ++i) largest = scores[i] > largest ? scores[i] : largest;
    if (largest > best.score) {"""
RECOVERED: list[Entry] = [
    ("SRT-1", "mass[i] = p[i] - q[i]", "mass[i] = q[i] - p[i]"),
    ("SRT-1", "mass > 0.0f ? product", "mass > 1e-30f ? product"),
    ("SRT-2", "token >= 0 && token < vocab_size ? token : vocab_size", "vocab_size"),
    (
        "SRT-3",
        f"{_LARGEST} int64_t first = 0; while (scores[first] != largest) ++first;",
        f"{_LARGEST} int64_t first = count; while (scores[--first] != largest) {{}}",
    ),
    ("SRT-4", "inv_q, row, b,", "inv_q, row, std::min(row, inv_q.size() - 1),"),
    ("SRT-5", "std::max<int64_t>(best.token, 0)", "best.token"),
    ("SRT-6", "inv_q.type == Type::float64 ? &recover<double> : &recover<float>", "&recover<float>"),
    (
        "SRT-7",
        "token >= 0 && token < vocab_size ? token : vocab_size",
        "token >= 0 ? std::min(token, vocab_size) : vocab_size - 1",
    ),
    ("SRT-8", "mass > 0.0f ? product", "mass != mass ? Noise(1e30) : mass > 0.0f ? product"),
    ("SRT-9", "if (best.token < 0) search<Noise>(target, nullptr, noise, row, request, 0, vocab_size, best);", ""),
    (
        "SRT-10",
        "for (int64_t row = tokens.begin(b); row < end; ++row) {",
        "if (tokens.begin(b) == end) output.set(end, 0);\n    for (int64_t row = tokens.begin(b); row < end; ++row) {",
    ),
    ("SRT-11", _DENSE_ROW, "return reinterpret_cast<T*>(tensor.data) + row * tensor.shape[1] + begin;"),
    ("SRT-12", "tensor.type == own && tensor.stride[1] == 1", "tensor.type == own"),
    ("SRT-13", _DENSE_ROW, "return tensor.at<T>(0) + (row * tensor.stride[0] + begin) % (int64_t{1} << 31);"),
    ("SRT-14", "output(output_token_ids)", f"output({narrow('output_token_ids')})"),
    (
        "SRT-15",
        "const Reals source(tensor);",
        f"const Reals source({view('tensor', 'type = t.type == Type::float16 ? Type::bfloat16 : t.type')});",
    ),
    ("SRT-16", "end = tokens.end(b);", "end = b + 1 == tokens.size() ? drafts.size() : tokens.end(b);"),
]

PREPARE_INPUTS: list[Entry] = [
    ("EPI-1", "count + 1 - valid", "count - valid"),
    ("EPI-2", "count > 0 ? count + 1 - valid.get(b) : 0", "count + 1 - valid.get(b)"),
    ("EPI-3", "starts.get(b + 1) - 1 - lost", "starts.get(b + 1) - lost"),
    ("EPI-4", "- drafts.begin(b);", "- drafts.begin(std::max<int64_t>(b, 1));"),
    ("EPI-5", "b < num_reqs;", "b < Integers(token_indices_to_sample).size();"),
    ("EPI-6", "rejected(num_rejected_tokens)", f"rejected({narrow('num_rejected_tokens')})"),
    ("EPI-7", "valid(valid_sampled_tokens_count)", f"valid({view('valid_sampled_tokens_count', 'stride[0] = 1')})"),
]

NEXT_TOKEN: list[Entry] = [
    ("ENT-1", "++count;", "count += 2;"),
    ("ENT-2", "last = token;", "if (count == 1) last = token;"),
    ("ENT-3", "next.set(b, last);", "next.set(b, count > 0 || discarded.get(b) ? last : -1);"),
    ("ENT-4", "if (!discarded.get(b)) {", "{"),
    ("ENT-5", "token < vocab_size)", "token <= vocab_size)"),
    ("ENT-6", "token >= 0 &&", "token != -1 &&"),
    ("ENT-7", "b < num_reqs;", "b < next.size();"),
    ("ENT-8", "i < num_sampled_tokens_per_req;", "i < sampled_token_ids.shape[1];"),
    ("ENT-9", "next(next_token_ids)", f"next({narrow('next_token_ids')})"),
    ("ENT-10", "sampled(sampled_token_ids)", f"sampled({view('sampled_token_ids', 'stride[1] = 1')})"),
]

STEP: list[Entry] = [
    ("ESM-1", "clamped.set(b, fits ? next", "clamped.set(b, fits ? next - 1"),
    ("ESM-2", "next < max_model_len;", "next <= max_model_len;"),
    ("ESM-3", "next % block_size", "(next - 1) % block_size"),
    ("ESM-4", "std::min(lengths.get(b) + 1, max_model_len)", "lengths.get(b) + 1"),
    ("ESM-5", "slots.set(b, pad_id);\n      continue;", "continue;"),
    ("ESM-6", "std::min(next / block_size, n_blocks_per_req - 1)", "next / block_size"),
    ("ESM-7", "const int64_t next =", "clamped.set(b, 0);\n    const int64_t next =", 0),
    ("ESM-8", "next >= 0 && ", ""),
    ("ESM-9", "blocks.get(b, block) * block_size", "static_cast<int32_t>(blocks.get(b, block) * block_size)"),
    ("ESM-10", "blocks(block_table)", f"blocks({view('block_table', 'stride[0] = t.shape[1]')})"),
    ("ESM-11", "lengths(seq_lens)", f"lengths({view('seq_lens', 'stride[0] = 1')})"),
    ("ESM-12", "slots(out_slot_mapping)", f"slots({narrow('out_slot_mapping')})"),
]

COPY: list[Entry] = [
    ("CEE-1", "begin + b * (added - dropped)", "begin"),
    ("CEE-2", "target_ids.get(begin + dropped + j)", "target_ids.get(begin + j)"),
    ("CEE-3", "bonus.get(b)", "bonus.get(0)"),
    ("CEE-4", "j > first_new && !is_rejected", "j >= first_new && !is_rejected"),
    ("CEE-5", "is_rejected ? 0 : target_position", "target_position"),
    ("CEE-6", "target_position.get(begin) + j", "target_position.get(begin) + dropped + j"),
    ("CEE-6", "target_position.get(begin) + j", "target_position.get(begin + (j > 0)) + j - (j > 0)"),
    ("CEE-7", "first_slot + first_new + i", "first_slot + first_new", 1),
    ("CEE-8", "if (shift_input_ids) {", "{"),
    (
        "CEE-9",
        "count = end - begin + added - dropped",
        "count = end - begin + added - dropped + (b + 1 == ends.size())",
    ),
    ("CEE-10", "j < count;", "j < std::min<int64_t>(count, 1024);", 0),
    ("CEE-11", "positions(out_positions)", f"positions({narrow('out_positions')})"),
    ("CEE-12", "target_ids(target_token_ids)", f"target_ids({view('target_token_ids', 'stride[0] = 1')})"),
]

_SLOT = "return block * block_size + position % block_size;"
FLASH: list[Entry] = [
    ("CDI-1", "context_positions.set(i, position)", "context_positions.set(i, target_position.get(begin) + i - begin)"),
    ("CDI-2", "context_slots.set(i, slot_of(b, position))", "context_slots.set(i, slot_of(0, position))"),
    ("CDI-3", "position = before + 1 + j", "position = before + j"),
    ("CDI-4", "end - 1 - rejected, begin, end - 1", "end - 1, begin, end - 1"),
    ("CDI-5", "has_num_rejected ? Integers", "num_rejected_tokens ? Integers"),
    ("CDI-6", "slot_of(b, position));\n    }\n    for", "slot_of(b, before + 1) + j);\n    }\n    for"),
    ("CDI-7", "next.get(b)", "next.get(0)"),
    ("CDI-8", "num_speculative_tokens + j, first_query + 1 + j", "num_speculative_tokens + j, first_query + j"),
    ("CDI-9", "first_query = b * num_query_per_req", "first_query = b * num_speculative_tokens"),
    ("CDI-10", "j < num_query_per_req;", "j < num_query_per_req + (end == total_input_tokens);"),
    ("CDI-11", "i = begin; i < end;", "i = begin; i < std::min(end, begin + 1024);"),
    ("CDI-12", "query_slots(out_query_slot_mapping)", f"query_slots({narrow('out_query_slot_mapping')})"),
    ("CDI-13", "0), columns - 1)", "0), block_table.stride[0] - 1)"),
    ("CDI-14", "std::clamp<int64_t>(end - 1 - rejected, begin, end - 1)", "std::max<int64_t>(end - 1 - rejected, 0)"),
    ("CDI-15", "int64_t before = -1;", "if (begin == end) continue;\n    int64_t before = -1;"),
    ("CDI-16", _SLOT, _SLOT.replace("block * ", "int64_t{int32_t(block * ").replace(" + ", ")} + ")),
    ("CDI-17", "blocks(block_table)", f"blocks({view('block_table', 'stride[0] = t.shape[1]')})"),
    ("CDI-18", "next(next_token_ids)", f"next({view('next_token_ids', 'stride[0] = 1')})"),
]

SLOTS: list[Entry] = [
    ("CSM-1", "blocks.get(request, place / entry)", "blocks.get(request, 0)"),
    ("CSM-2", "run / total_cp_world_size * cp_kv_cache_interleave_size", "run / total_cp_world_size"),
    ("CSM-3", "if (run % total_cp_world_size != total_cp_rank) return pad_id;", ""),
    ("CSM-4", "i = num_tokens; i < max_num_tokens", "i = num_tokens + 1; i < max_num_tokens"),
    (
        "CSM-5",
        "end = std::min(starts.get(b + 1), num_tokens)",
        "end = b + 2 == starts.size() ? num_tokens : std::min(starts.get(b + 1), num_tokens)",
    ),
    (
        "CSM-6",
        "return blocks.get(request, place / entry) * kv_cache_block_size + local;",
        "return int64_t{static_cast<int32_t>(blocks.get(request, place / entry) * kv_cache_block_size + local)};",
    ),
    ("CSM-7", "blocks.get(request,", "blocks.get(0,"),
    ("CSM-8", "place < 0 || ", ""),
    ("CSM-9", "#pragma omp", "if (starts.size() == 1) return;\n#pragma omp"),
    ("CSM-10", "position(positions)", f"position({view('positions', 'stride[0] = 1')})"),
    ("CSM-11", "position(positions)", f"position({narrow('positions')})"),
]

_TREE_WALK = "trees.walk(b, [&]"
_TREE_END = "retrieve_index, retrieve_next_token, retrieve_next_sibling);"
_TREE_TENSORS = f"accept_token_num, candidates, {_TREE_END}"
BUILD_TREE: list[Entry] = [
    ("BDT-1", "beams.get(b, entry)", "beams.get(b, entry - 1)"),
    ("BDT-2", "int64_t i = nodes - 1; i > 0; --i", "int64_t i = 1; i < nodes; ++i", 1),
    ("BDT-3", "next_sibling.set(b, i, first[parent[i]]);", "next_sibling.set(b, i, i + 1);"),
    ("BDT-4", "index.set(b, i, b * nodes + i)", "index.set(b, i, i)"),
    ("BDT-5", "where.set(b * nodes + i, length + level)", "where.set(b * nodes + i, length + (i > 0))"),
    ("BDT-6", "mark(node, true)", "mark(i, true)"),
    (
        "BDT-7",
        "mark(column, column == 0);",
        "mark(column, column == 0);\n      if (before > 0) mark(-1, i % 2);",
    ),
    ("BDT-8", "before = tree_mask_mode == 0 ? length : 0", "before = length"),
    ("BDT-9", "for (int64_t i = 0; i < nodes; ++i) {", "for (int64_t i = 0; nodes > 1 && i < nodes; ++i) {"),
    ("BDT-10", "entry > 0 ? -1 : 0", "entry > topk * depth ? -1 : 0"),
    ("BDT-11", "candidate < 0 || entry > 0 ? -1 : 0", "entry > 0 ? -1 : 0"),
    ("BDT-12", "node > 0 && level < depth;", "node > 0 && level < depth + 2;"),
    ("BDT-13", "selected(selected_index)", f"selected({view('selected_index', 'stride[1] = 1')})"),
    ("BDT-14", "lengths(verified_seq_len)", f"lengths({narrow('verified_seq_len')})"),
]

_PREDICT = "trees.predicts.set(place, wanted);"
TREE_GREEDY: list[Entry] = [
    ("VTG-1", "return token == wanted;", "return token == wanted && node == 0;"),
    ("VTG-2", _PREDICT, f"if (trees.next_token.get(b, node) >= 0) {_PREDICT}"),
    ("VTG-3", _PREDICT, f"if (node == 0 || trees.next_token.get(b, node) < 0) {_PREDICT}"),
    ("VTG-4", _TREE_WALK, f"if (b == 1) trees.accept_token_num.set(b, 0); else {_TREE_WALK}"),
    ("VTG-5", _PREDICT, f"{_PREDICT} trees.predicts.set((place + 1) % trees.predicts.size(), wanted);"),
    (
        "VTG-6",
        "return token == wanted;",
        "return token == wanted && trees.candidates.get(b, trees.next_token.get(b, 0)) == token;",
    ),
    ("VTG-7", "is_full ? -1 :", "false ? -1 :"),
    ("VTG-8", _TREE_WALK, f"if (trees.nodes > 1) {_TREE_WALK}"),
    ("VTG-9", _PREDICT, f"{_PREDICT} if (trees.candidates.get(b, trees.nodes - 1) == wanted) return int64_t{{-1}};"),
    ("VTG-10", "return token == wanted;", "return token < 0 || token == wanted;"),
    ("VTG-11", "argmax.get(place / trees.nodes, place % trees.nodes)", "argmax.get(b, node)"),
    (
        "VTG-12",
        "trees.find_child(b, node, accepts)",
        "trees.next_token.get(b, node) >= trees.nodes ? 1 : trees.find_child(b, node, accepts)",
    ),
    ("VTG-13", _TREE_WALK, f"if (trees.places.get(b, 0) < 0) trees.predicts.set(b, 0); {_TREE_WALK}"),
    ("VTG-14", "argmax(target_predict)", f"argmax({view('target_predict', 'stride[1] = 1')})"),
    ("VTG-15", "argmax(target_predict)", f"argmax({narrow('target_predict')})"),
]

_READ = "read_weights(target_probs, b, node, weights.p);"
_STORE = "trees.predicts.set(place, child < 0"
_IS_TOKEN = "if (is_over || token < 0 || token >= vocab) return false;"
TREE_SAMPLED: list[Entry] = [
    ("VTS-1", "< weights.q_sum * weights.p[token]", "<= weights.q_sum * weights.p[token]"),
    ("VTS-2", "q_sum * p[x] - p_sum * q[x]", "q_sum * p[x] - q[x]"),
    ("VTS-2", "weights.p_sum = weights.q_sum = 1;", "weights.q_sum = 1;"),
    ("VTS-3", "if (!is_drawn) left[token] = 0;", ""),
    ("VTS-4", "if (is_drawn && without_replacement)", "if (is_drawn)"),
    ("VTS-5", "last.get(b)", "1 - last.get(b)"),
    ("VTS-6", "bool is_over = is_full;", "bool is_over = false;"),
    ("VTS-7", "trees.candidates.get(b, child)", "trees.candidates.get(b, node)"),
    ("VTS-8", _STORE, f"trees.predicts.set((place + 1) % trees.predicts.size(), 0); {_STORE}"),
    ("VTS-9", "if (!is_drawn) left[token] = 0;", "if (!is_drawn) left[token] *= 0.5;"),
    ("VTS-10", _IS_TOKEN, f"is_over |= token < 0; {_IS_TOKEN}"),
    ("VTS-11", "if (!(q > 0)) return false;", "if (!(q >= 0)) return false;", 1),
    (
        "VTS-12",
        "uniform.get(b, child) * (weights.p_sum * q) < weights.q_sum * weights.p[token]",
        "!(uniform.get(b, child) * (weights.p_sum * q) >= weights.q_sum * weights.p[token])",
    ),
    ("VTS-13", "if (!(left_sum > 0)) return false;", "", 0),
    ("VTS-14", _READ, f"if (trees.next_token.get(b, node) >= trees.nodes) return int64_t{{1}}; {_READ}"),
    ("VTS-15", "uniform.get(b, child) *", "float(uniform.get(b, child)) *"),
    ("VTS-15", "last.get(b)", "float(last.get(b))"),
    ("VTS-16", "uniform(uniform_samples)", f"uniform({view('uniform_samples', 'stride[1] = 1')})"),
    ("VTS-17", _TREE_TENSORS, f"accept_token_num, {narrow('candidates')}, {_TREE_END}"),
    ("VTS-18", _TREE_WALK, f"if (trees.nodes > 1) {_TREE_WALK}"),
    ("VTS-19", "uniform.get(b, child)", "uniform.get(b, 0)"),
]

_IS_TYPICAL = "if (token < 0 || token >= vocab) return false;"
TREE_TYPICAL: list[Entry] = [
    ("VTT-1", "u < tried / divisor", "u <= tried / divisor"),
    ("VTT-2", "p[token] >= threshold_single", "p[token] > threshold_single"),
    ("VTT-3", "left[token] = 0;", ""),
    ("VTT-4", "is_full ? -1", "false ? -1"),
    ("VTT-5", "trees.candidates.get(b, child)", "trees.candidates.get(b, node)"),
    ("VTT-6", "tried += p[token]", "tried += left[token]"),
    ("VTT-7", "std::max(threshold_acc, 1e-9)", "std::max(threshold_acc, 1e-6)"),
    ("VTT-8", _IS_TYPICAL, f"tried += token < 0 ? 0.25 : 0; {_IS_TYPICAL}"),
    ("VTT-9", _IS_TYPICAL, f"tried += token >= vocab ? 0.75 : 0; {_IS_TYPICAL}"),
    ("VTT-10", "u < tried / divisor", "!(u >= tried / divisor)"),
    ("VTT-11", "uniform(uniform_samples)", f"uniform({view('uniform_samples', 'stride[1] = 1')})"),
    ("VTT-12", _TREE_TENSORS, f"accept_token_num, {narrow('candidates')}, {_TREE_END}"),
    ("VTT-13", _TREE_WALK, f"if (trees.nodes > 1) {_TREE_WALK}"),
    ("VTT-14", "u = uniform.get(b, node)", "u = last.get(b)"),
    ("VTT-15", "u = uniform.get(b, node)", "u = float(uniform.get(b, node))"),
    ("VTT-15", "last.get(b)", "float(last.get(b))"),
]

MUTANTS: dict[str, list[Entry]] = {
    "build_draft_tree": BUILD_TREE,
    "compute_slot_mapping": SLOTS,
    "copy_and_expand_dflash_inputs": FLASH,
    "copy_and_expand_eagle_inputs": COPY,
    "eagle_prepare_inputs_padded": PREPARE_INPUTS,
    "eagle_prepare_next_token_padded": NEXT_TOKEN,
    "eagle_step_slot_mapping_metadata": STEP,
    "expand_batch_to_tokens": EXPAND,
    "rejection_greedy_sample": GREEDY,
    "rejection_random_sample": RANDOM,
    "sample_recovered_tokens": RECOVERED,
    "verify_tree_greedy": TREE_GREEDY,
    "verify_tree_sampled": TREE_SAMPLED,
    "verify_tree_typical": TREE_TYPICAL,
}
