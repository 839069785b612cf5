/* Options by name, from text: for bindings and configuration files. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "base/numerals.h"
#include "session/state.h"

typedef enum kind { INT, COUNT, NUMBER, FLAG, ADDRESS, WORDS } kind;

#define KEY(kind, field) \
  { #field, kind, offsetof(weir_options, field), sizeof(((weir_options *)NULL)->field) }
static const struct {
  const char *key;
  kind kind;
  size_t at, bytes;
} keys[] = {KEY(INT, rank),           KEY(INT, world_size),      KEY(WORDS, transport),
            KEY(WORDS, rendezvous),   KEY(WORDS, bind_address),  KEY(COUNT, job_id),
            KEY(WORDS, secret),       KEY(WORDS, secret_file),   KEY(NUMBER, timeout_s),
            KEY(WORDS, policy),       KEY(WORDS, risk),          KEY(NUMBER, trial_budget),
            KEY(COUNT, steps),        KEY(COUNT, seed),          KEY(NUMBER, momentum_correction),
            KEY(COUNT, warmup_steps), KEY(WORDS, journal_path),  KEY(COUNT, journal_bytes),
            KEY(FLAG, active_probes), KEY(FLAG, overlap),        KEY(FLAG, profile),
            KEY(INT, codec_threads),  KEY(COUNT, memory_limit),  KEY(INT, tcp_streams),
            KEY(INT, device),         KEY(ADDRESS, stream),      KEY(WORDS, nonfinite),
            KEY(INT, listener),       KEY(WORDS, tls),           KEY(WORDS, full_precision),
            KEY(INT, max_ranks),      KEY(WORDS, update_rule),   KEY(WORDS, tls_certificate),
            KEY(WORDS, tls_key),      KEY(WORDS, tls_authority), KEY(FLAG, error_feedback)};
#define KEYS (sizeof keys / sizeof *keys)

size_t weir_options_size(void) { return sizeof(weir_options); }

static bool read_int(const char *text, int *out) {
  char *end;
  errno = 0;
  const long value = strtol(text, &end, 10);
  *out = (int)value;
  return end != text && *end == 0 && errno == 0 && value == (long)*out;
}

/* strtoull takes a sign, and makes large numbers of small negative ones. */
static bool read_count(const char *text, uint64_t *out) {
  char *end;
  errno = 0;
  *out = strtoull(text, &end, 10);
  return *text >= '0' && *text <= '9' && *end == 0 && errno == 0;
}

static bool read_address(const char *text, void **out) {
  uint64_t count;
  if (!read_count(text, &count) || count > UINTPTR_MAX) return false;
  *out = (void *)(uintptr_t)count;
  return true;
}

static bool read_number(const char *text, double *out) {
  char *end;
  *out = weir_strtod(text, &end);
  return end != text && *end == 0;
}

static bool read_flag(const char *text, bool *out) {
  *out = strcmp(text, "true") == 0;
  return *out || strcmp(text, "false") == 0;
}

weir_status weir_options_set(weir_options *options, const char *key, const char *value) {
  static const char *const due[] = {"a whole number", "a whole number of at least 0", "a number",
                                    "\"true\" or \"false\"", "an address in decimal digits"};
  union {
    int whole;
    uint64_t count;
    double number;
    bool flag;
    void *address;
    const char *words;
  } read;
  size_t i = 0;
  if (options == NULL || key == NULL || value == NULL)
    return weir_fail(WEIR_E_INVALID, "options, key and value are all needed");
  while (i < KEYS && strcmp(key, keys[i].key) != 0) i++;
  if (i == KEYS) return weir_fail(WEIR_E_INVALID, "there is no option \"%s\"", key);
  if (keys[i].at + keys[i].bytes > options->struct_size)
    return weir_fail(
        WEIR_E_INVALID,
        "option \"%s\" lies beyond the caller's struct of %zu bytes: weir_options_init "
        "was not called, or the caller's header is older",
        key, options->struct_size);
  bool good = true;
  switch (keys[i].kind) {
    case INT: good = read_int(value, &read.whole); break;
    case COUNT: good = read_count(value, &read.count); break;
    case NUMBER: good = read_number(value, &read.number); break;
    case FLAG: good = read_flag(value, &read.flag); break;
    case ADDRESS: good = read_address(value, &read.address); break;
    case WORDS: read.words = value; break;
  }
  if (!good)
    return weir_fail(WEIR_E_INVALID, "option \"%s\" takes %s, not \"%s\"", key, due[keys[i].kind],
                     value);
  memcpy((char *)options + keys[i].at, &read, keys[i].bytes);
  return WEIR_OK;
}
