#include "controller/decide.h"

#define AT(member) offsetof(weir_decision_input, member)

const weir_field weir_fields[] = {
    {"decision", WEIR_FIELD_U64, AT(decision), 0},
    {"step", WEIR_FIELD_U64, AT(step), 0},
    {"epoch", WEIR_FIELD_U64, AT(epoch), 0},
    {"policy", WEIR_FIELD_U32, AT(policy), 0},
    {"trigger", WEIR_FIELD_U32, AT(trigger), 0},
    {"seed", WEIR_FIELD_U64, AT(seed), 0},
    {"workers", WEIR_FIELD_U64, AT(workers), 0},
    {"elements", WEIR_FIELD_U64, AT(elements), 0},
    {"latency_s", WEIR_FIELD_DOUBLE, AT(latency), 0},
    {"latency_error", WEIR_FIELD_DOUBLE, AT(latency_error), 0},
    {"bandwidth_bytes_s", WEIR_FIELD_DOUBLE, AT(bandwidth), 0},
    {"bandwidth_error", WEIR_FIELD_DOUBLE, AT(bandwidth_error), 0},
    {"compute_s", WEIR_FIELD_DOUBLE, AT(compute), 0},
    {"gain", WEIR_FIELD_DOUBLE, AT(gain), 0},
    {"curve", WEIR_FIELD_DOUBLE, AT(curve), WEIR_CURVE_POINTS},
    {"curve_cr", WEIR_FIELD_DOUBLE, AT(curve_cr), WEIR_CURVE_POINTS},
    {"overlap", WEIR_FIELD_DOUBLE, AT(overlap), 0},
    {"overhead_s", WEIR_FIELD_DOUBLE, AT(overhead), WEIR_ARMS},
    {"compress", WEIR_FIELD_DOUBLE, AT(compress), WEIR_CODEC_COUNT},
    {"current_codec", WEIR_FIELD_U32, AT(current.codec), 0},
    {"current_collective", WEIR_FIELD_U32, AT(current.collective), 0},
    {"current_wire", WEIR_FIELD_U32, AT(current.wire), 0},
    {"current_cr", WEIR_FIELD_DOUBLE, AT(current.cr), 0},
    {"previous_codec", WEIR_FIELD_U32, AT(previous.codec), 0},
    {"previous_collective", WEIR_FIELD_U32, AT(previous.collective), 0},
    {"previous_wire", WEIR_FIELD_U32, AT(previous.wire), 0},
    {"previous_cr", WEIR_FIELD_DOUBLE, AT(previous.cr), 0},
    {"dwell", WEIR_FIELD_U64, AT(dwell), 0},
    {"trial_compress_s", WEIR_FIELD_DOUBLE, AT(trial_compress), WEIR_TRIALS},
    {"trial_gain", WEIR_FIELD_DOUBLE, AT(trial_gain), WEIR_TRIALS},
};
const size_t weir_field_count = sizeof weir_fields / sizeof *weir_fields;
