#include "lab/scenario_keys.h"


#define AT(field) offsetof(weir_scenario, field)
#define IN_PHASE(field) offsetof(weir_phase, field)
#define TINY 1e-9 /* below it, what must be positive counts as zero */

const weir_key weir_scenario_keys[] = {
    /* section, key, kind, where, line kept in, from, to, required, expected */
    {"scenario", "name", WEIR_KEY_TEXT, AT(name), 0, 0, 0, false, "a title"},
    {"scenario", "workers", WEIR_KEY_COUNT, AT(workers), AT(workers_line), 1,
     WEIR_SCENARIO_WORKERS_MAX, true, "a whole number from 1 to 4096"},
    {"scenario", "bandwidth_scale", WEIR_KEY_REAL, AT(bandwidth_scale), 0, TINY, 1e6, false,
     "a number greater than 0: every bandwidth is multiplied by it"},
    {"scenario", "seed", WEIR_KEY_SEED, AT(seed), 0, 0, 0, false, "a whole number, 0 or more"},
    {"scenario", "timeout_s", WEIR_KEY_REAL, AT(timeout_s), 0, 0.5, 3600, false,
     "seconds from 0.5 to 3600"},
    {"scenario", "policy", WEIR_KEY_TEXT, AT(policy), AT(policy_line), 0, 0, false,
     "weir, paper, bits or fixed:CODEC:CR:COLLECTIVE"},

    {"scenario", "overlap", WEIR_KEY_COUNT, AT(overlap), 0, 0, 1, false,
     "0 or 1: policy weir may exchange groups of tensors while the backward pass goes on"},

    {"scenario", "segments", WEIR_KEY_COUNT, AT(segments), 0, 2, 44, false,
     "2 to 44: TCP segments that a worker's kernel sends at a time at least"},

    {"training", "dataset", WEIR_KEY_TEXT, AT(dataset), 0, 0, 0, false, "fashion-mnist"},
    {"training", "data_dir", WEIR_KEY_TEXT, AT(data_dir), AT(data_dir_line), 0, 0, false,
     "a folder with the data set's four gzipped files"},
    {"training", "model", WEIR_KEY_TEXT, AT(model), 0, 0, 0, false, "mlp or deep"},
    {"training", "batch", WEIR_KEY_COUNT, AT(batch), 0, 1, 8192, true,
     "a whole number from 1 to 8192: images a worker takes in a step"},
    {"training", "learning_rate", WEIR_KEY_REAL, AT(learning_rate), 0, TINY, 100, true,
     "a number greater than 0"},
    {"training", "momentum", WEIR_KEY_REAL, AT(momentum), 0, 0, 0.9999, false,
     "a number from 0 to 0.9999"},
    {"training", "weight_decay", WEIR_KEY_REAL, AT(weight_decay), 0, 0, 1, false,
     "a number from 0 to 1"},
    {"training", "decay_factor", WEIR_KEY_REAL, AT(decay_factor), 0, TINY, 1, false,
     "a number greater than 0, at most 1"},
    {"training", "decay_epochs", WEIR_KEY_EPOCHS, 0, AT(decay_line), 0, 1e6, false,
     "ascending epochs with commas, e.g. 30, 40"},
    {"training", "epochs", WEIR_KEY_COUNT, AT(epochs), AT(epochs_line), 1, 1e6, true,
     "a whole number from 1 to 1000000"},
    {"training", "steps_per_epoch", WEIR_KEY_COUNT, AT(steps_per_epoch), 0, 0, 1e6, false,
     "a whole number; 0: the whole data set"},
    {"training", "evaluate_every", WEIR_KEY_COUNT, AT(evaluate_every), 0, 1, 1e6, false,
     "a whole number of epochs, at least 1"},
    {"training", "train_limit", WEIR_KEY_COUNT, AT(train_limit), 0, 0, 1e9, false,
     "a whole number of images; 0: all"},

    {"phase", "epochs", WEIR_KEY_RANGE, 0, 0, 0, 1e6, true, "FIRST-LAST, e.g. 1-12"},
    {"phase", "latency_ms", WEIR_KEY_REAL, IN_PHASE(latency_ms), 0, 0, 10000, true,
     "milliseconds one way, from 0 to 10000"},
    {"phase", "bandwidth_gbps", WEIR_KEY_REAL, IN_PHASE(bandwidth_gbps), 0, TINY, 1e5, true,
     "Gbit/s, greater than 0"},
    {"phase", "loss_percent", WEIR_KEY_REAL, IN_PHASE(loss_percent), 0, 0, 50, false,
     "percent from 0 to 50"},
    {"phase", "reorder_percent", WEIR_KEY_REAL, IN_PHASE(reorder_percent), 0, 0, 50, false,
     "percent from 0 to 50"},
    {"phase", "duplicate_percent", WEIR_KEY_REAL, IN_PHASE(duplicate_percent), 0, 0, 50, false,
     "percent from 0 to 50"},

    {"trace", "file", WEIR_KEY_TEXT, AT(trace.file), AT(trace.line), 0, 0, true,
     "a file with one millisecond stamp a line"},
    {"trace", "latency_ms", WEIR_KEY_REAL, AT(trace.latency_ms), 0, 0, 10000, true,
     "milliseconds one way, from 0 to 10000"},
    {"trace", "interval_s", WEIR_KEY_REAL, AT(trace.interval_s), 0, 0.05, 3600, false,
     "seconds from 0.05 to 3600"},
    {"trace", "window_s", WEIR_KEY_REAL, AT(trace.window_s), 0, 0.05, 3600, false,
     "seconds from 0.05 to 3600"},
    {"trace", "slot_bytes", WEIR_KEY_REAL, AT(trace.slot_bytes), 0, 1, 65536, false,
     "bytes from 1 to 65536"},

    {"fault", "kind", WEIR_KEY_FAULT, AT(fault), 0, 0, 0, true,
     "kill, freeze or exit"},
    {"fault", "rank", WEIR_KEY_COUNT, AT(fault_rank), AT(fault_line), 0, WEIR_SCENARIO_WORKERS_MAX, true,
     "a worker's number, counting from 0"},
    {"fault", "step", WEIR_KEY_COUNT, AT(fault_step), 0, 0, 1e9, true,
     "a step's number, counting from 0"},
    {NULL, NULL, WEIR_KEY_TEXT, 0, 0, 0, 0, false, NULL},
};
